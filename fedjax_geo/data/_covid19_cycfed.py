"""Chest X-rays with and without COVID-19, as FL-bench and FedVG (Devkota et al., 2026, arXiv 2602.21399) use them.

Two arrays of the cycfed collection. Another set than the one of ``covid19_radiography``. What its four classes
are called is not written in the files.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedjax_geo.data._cache import cached
from fedjax_geo.data._guard import check_labels
from fedjax_geo.data._npy import map_npy
from fedjax_geo.data._places import find_form, put_into
from fedjax_geo.data._prepare import scale
from fedjax_geo.data._source import DatasetCorrupt, IntArray, Source

_CLASSES = 4
_CHUNK = 64  # images converted at a time


def covid19_cycfed(data_dir: str | os.PathLike[str] | None = None) -> Source:
    """X-rays of four classes, without an official test part.

    Images stored as uint8 stay on disk, memory-mapped. Others are converted once: values up to 1 are multiplied
    by 255, and all are rounded.

    Args:
        data_dir: the only place to look for the files; None searches the usual places.

    Raises:
        DatasetNotFound: the files are in none of the places searched.
        DatasetCorrupt: a file is damaged or not the expected one.
    """
    _, [[x_file], [y_file]] = find_form(
        {"arrays": ["xdata.npy", "ydata.npy"]},
        ("covid19_cycfed/raw", "covid19_cycfed", "covid19/raw", "covid19", "raw"),
        data_dir=data_dir,
        name="covid19_cycfed",
        hint="Get covid19.tar.gz of the cycfed collection (FL-bench tells where), unpack it and "
        + put_into("xdata.npy and ydata.npy"),
    )
    x, labels = map_npy(x_file), _labels(y_file)
    if x.ndim == 3:
        x = x[..., None]
    if x.ndim != 4 or x.shape[-1] not in (1, 3) or len(x) != len(labels) or x.dtype.kind not in "uif":
        raise DatasetCorrupt(f"{x_file}: {x.dtype} {x.shape}, expected {len(labels)} grey or colour images")
    stored = "as stored"
    if x.dtype != np.uint8:
        stored = f"from {x.dtype}"
        x = cached("covid19_cycfed", [x_file], lambda: {"images": _to_uint8(x_file, x)})["images"]
    return Source(
        images=x,
        labels=labels.astype(np.int32),
        class_names=tuple(f"class {i}" for i in range(_CLASSES)),
        prepare=scale(255),
        num_train=len(labels),
        provenance=f"covid19_cycfed: {x_file.parent}, {stored}",
        licence="not known",
    )


def _labels(path: Path) -> IntArray:
    stored = map_npy(path)
    labels = stored.reshape(-1).astype(np.int64) if stored.dtype.kind in "iub" else None
    if labels is None or stored.shape[:1] != (stored.size,):
        raise DatasetCorrupt(f"{path}: {stored.dtype} {stored.shape}, expected one whole number for each image")
    check_labels(path, labels, _CLASSES)
    return labels


def _to_uint8(path: Path, x: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    chunks = [slice(start, start + _CHUNK) for start in range(0, len(x), _CHUNK)]
    top = 0.0
    for chunk in chunks:
        with np.errstate(invalid="ignore"):
            if not ((x[chunk] >= 0) & (x[chunk] <= 255)).all():
                raise DatasetCorrupt(f"{path}: pixels must be in [0, 1] or [0, 255]")
        top = max(top, float(x[chunk].max(initial=0)))
    images = np.empty(x.shape, np.uint8)
    for chunk in chunks:
        images[chunk] = np.rint(x[chunk] * (255.0 if top <= 1 else 1.0))
    return images
