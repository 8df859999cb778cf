"""FEMNIST as LEAF's scripts write it: JSON files of some hundred writers each."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedjax_geo.data._cache import Arrays, cached
from fedjax_geo.data._femnist import pack, to_uint8, unpack
from fedjax_geo.data._guard import blame, read_bytes
from fedjax_geo.data._places import find_form, put_into
from fedjax_geo.data._source import DatasetCorrupt, IntArray, Source

_LIMIT = 1 << 32  # bytes of one file; real ones hold 100 writers in about 300 MB
_HINT = "Run preprocess.sh of https://github.com/TalwalkarLab/leaf, data/femnist, and " + put_into(
    "its folders train and test, or all_data,"
)


def femnist_leaf(data_dir: str | os.PathLike[str] | None = None) -> Source:
    """Characters by writer, from ``train/*.json`` and ``test/*.json``, or from ``all_data/*.json``.

    Args:
        data_dir: the only place to look for the files; None searches the usual places.

    Raises:
        DatasetNotFound: the files are in none of the places searched.
        DatasetCorrupt: a file is damaged or not the expected one.
    """
    form, matches = find_form(
        {"split": ["train/*.json", "test/*.json"], "whole": ["all_data/*.json"]},
        ("femnist_leaf", "femnist", "femnist/data", "leaf/data/femnist/data"),
        data_dir=data_dir,
        name="femnist_leaf",
        hint=_HINT,
    )
    train = matches[0]
    test = matches[1] if form == "split" else []
    arrays = cached("femnist_leaf", [*train, *test], lambda: _read(train, test))
    return unpack("femnist_leaf", train[0].parent.parent, arrays)


def _read(train: list[Path], test: list[Path]) -> Arrays:
    images: list[npt.NDArray[np.uint8]] = []
    labels: list[IntArray] = []
    writers: list[str] = []
    num_train = 0
    for file in (*train, *test):
        content: Any = None
        with blame(file):
            content = json.loads(read_bytes(file, _LIMIT))
        for writer, x, y in _users(file, content):
            images.append(x)
            labels.append(y)
            writers += [writer] * len(y)
            num_train += len(y) if file in train else 0
    place = train[0].parent.parent
    if not images:
        raise DatasetCorrupt(f"{place}: holds no writers")
    return pack(place, np.concatenate(images), np.concatenate(labels), writers, num_train)


def _users(file: Path, content: Any) -> list[tuple[str, npt.NDArray[np.uint8], IntArray]]:
    """Writer, images and labels, as the file lists them."""
    found: list[tuple[str, npt.NDArray[np.uint8], IntArray]] = []
    with blame(file, KeyError, TypeError, AttributeError, ValueError, OverflowError):
        if not len(content["users"]) == len(content["num_samples"]) == len(content["user_data"]):
            raise DatasetCorrupt(f"{file}: users, num_samples and user_data are not equally many")
        for writer, count in zip(content["users"], content["num_samples"], strict=True):
            stored = content["user_data"][writer]
            x, y = np.array(stored["x"], np.float64), np.array(stored["y"])
            if x.shape != (count, 784) or y.shape != (count,) or (count and y.dtype.kind != "i"):
                raise DatasetCorrupt(f"{file}: {writer} has x {x.shape} and y {y.shape}, expected {count} of both")
            found.append((str(writer), to_uint8(f"{file}: {writer}", x), y.astype(np.int64)))
    return found
