"""FEMNIST as TensorFlow Federated distributes it: two HDF5 files, every writer in both."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedjax_geo.data._cache import Arrays, cached
from fedjax_geo.data._femnist import pack, to_uint8, unpack
from fedjax_geo.data._guard import blame, need
from fedjax_geo.data._places import find_form, put_into
from fedjax_geo.data._source import DatasetCorrupt, IntArray, Source

_HINT = (
    "Get fed_emnist{}.tar.bz2 of TensorFlow Federated (tff.simulation.datasets.emnist.load_data downloads it), "
    "unpack it and " + put_into("the two .h5 files")
)


def femnist_tff(data_dir: str | os.PathLike[str] | None = None, *, digits_only: bool = False) -> Source:
    """Characters of 3,400 writers (or digits of 3,383), official training and test part pooled.

    Args:
        data_dir: the only place to look for the files; None searches the usual places.
        digits_only: read the files with ten classes.

    Raises:
        DatasetNotFound: the files are in none of the places searched.
        DatasetCorrupt: a file is damaged or not the expected one.
        ImportError: h5py is not installed.
    """
    suffix = "_digitsonly" if digits_only else ""
    name = "femnist_tff_digits" if digits_only else "femnist_tff"
    _, matches = find_form(
        {"files": [f"fed_emnist{suffix}_train.h5", f"fed_emnist{suffix}_test.h5"]},
        ("femnist_tff", "femnist", "fed_emnist", f"fed_emnist{suffix}"),
        data_dir=data_dir,
        name=name,
        hint=_HINT.format(suffix),
    )
    paths = [match[0] for match in matches]
    return unpack(name, paths[0].parent, cached(name, paths, lambda: _read(paths)), digits_only=digits_only)


def _read(paths: list[Path]) -> Arrays:
    h5py = need("h5py", "femnist", "reading HDF5 files")
    images: list[npt.NDArray[np.uint8]] = []
    labels: list[IntArray] = []
    writers: list[str] = []
    num_train = 0
    for path in paths:
        with blame(path), h5py.File(path, "r") as file:
            size = path.stat().st_size
            for writer in sorted(file["examples"]):
                where = f"{path}: {writer}"
                group = _own(where, h5py, file["examples"], writer)
                x, y = _array(where, h5py, group, "pixels", size), _array(where, h5py, group, "label", size)
                if x.shape != (len(y), 28, 28) or x.dtype.kind != "f" or y.ndim != 1 or y.dtype.kind not in "iu":
                    raise DatasetCorrupt(f"{where}: {x.dtype} pixels {x.shape} and {y.dtype} labels {y.shape}")
                images.append(to_uint8(where, x))
                labels.append(y.astype(np.int64))
                writers += [writer] * len(y)
                num_train += len(y) if path == paths[0] else 0
    if not images:
        raise DatasetCorrupt(f"{paths[0]}: holds no writers")
    return pack(paths[0].parent, np.concatenate(images), np.concatenate(labels), writers, num_train)


def _own(where: str, h5py: Any, group: Any, name: str) -> Any:
    """A member of a group that is stored in this file, not linked from elsewhere."""
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise DatasetCorrupt(f"{where}: {name} is missing or a link")
    return group[name]


def _array(where: str, h5py: Any, group: Any, name: str, size: int) -> npt.NDArray[Any]:
    """A stored array, unless it claims more than deflate can have packed into the file."""
    stored = _own(where, h5py, group, name)
    if not isinstance(stored, h5py.Dataset) or stored.is_virtual or stored.external:
        raise DatasetCorrupt(f"{where}: {name} is no array in this file")
    if stored.dtype.kind not in "fiu" or stored.nbytes > 1032 * size:
        raise DatasetCorrupt(f"{where}: {name} claims {stored.nbytes} bytes of {stored.dtype}")
    array: npt.NDArray[Any] = stored[()]
    return array if array.ndim else array.reshape(1)
