"""MedMNIST: J. Yang et al., MedMNIST v2, Scientific Data 2023, arXiv 2110.14795."""

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedjax_geo.data._cache import Arrays, cached
from fedjax_geo.data._guard import blame, check_labels
from fedjax_geo.data._npy import read_npz_array
from fedjax_geo.data._places import find_form, put_into
from fedjax_geo.data._prepare import scale
from fedjax_geo.data._source import DatasetCorrupt, Source

NAMES = {
    "organamnist": (
        *("bladder", "femur-left", "femur-right", "heart", "kidney-left", "kidney-right"),
        *("liver", "lung-left", "lung-right", "pancreas", "spleen"),
    ),
    "dermamnist": (
        "actinic keratoses and intraepithelial carcinoma",
        "basal cell carcinoma",
        "benign keratosis-like lesions",
        "dermatofibroma",
        "melanoma",
        "melanocytic nevi",
        "vascular lesions",
    ),
    "pneumoniamnist": ("normal", "pneumonia"),
}
_SPLITS = ("train", "val", "test")
_SIZES = (28, 64, 128, 224)


def medmnist(
    flag: str,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    size: int = 28,
    splits: Sequence[str] = _SPLITS,
) -> Source:
    """One of the two-dimensional single-label sets of MedMNIST, its official parts pooled.

    FedVG (Devkota et al., 2026, arXiv 2602.21399) pools all three parts of OrganAMNIST, but leaves the
    validation part of DermaMNIST out: ``medmnist("dermamnist", size=224, splits=("train", "test"))``.

    Args:
        flag: such as ``organamnist``.
        data_dir: the only place to look for the file; None searches the usual places and ``~/.medmnist``.
        size: 28, 64, 128 or 224 pixels.
        splits: the official parts to use, a part of ("train", "val", "test") in this order. Those before
            ``test`` count as training examples.

    Raises:
        ValueError: an unknown size or part.
        DatasetNotFound: the file is in none of the places searched.
        DatasetCorrupt: it is damaged or not the expected one.
    """
    if size not in _SIZES:
        raise ValueError(f"size must be one of {_SIZES}, got {size}")
    if not splits or list(splits) != [split for split in _SPLITS if split in splits]:
        raise ValueError(f"splits must be a part of {_SPLITS} in this order, got {splits}")
    file = f"{flag}.npz" if size == 28 else f"{flag}_{size}.npz"
    home = [] if data_dir is not None else [str(Path("~/.medmnist").expanduser())]
    _, [[path]] = find_form(
        {"file": [file]},
        ("medmnist", *home),
        data_dir=data_dir,
        name=flag,
        hint=f"Get {file} from https://medmnist.com and {put_into('it')}",
    )
    arrays = cached(f"{file.removesuffix('.npz')}-{'-'.join(splits)}", [path], lambda: _read(path, size, splits))
    labels = arrays["labels"]
    names = NAMES.get(flag) or tuple(f"class {i}" for i in range(int(labels.max(initial=0)) + 1))
    check_labels(path, labels, len(names))
    return Source(
        images=arrays["images"],
        labels=labels,
        class_names=names,
        prepare=scale(255),
        num_train=int(arrays["num_train"][0]),
        provenance=f"{flag}: {path}, official parts {', '.join(splits)}",
        licence="CC BY-NC 4.0" if flag == "dermamnist" else "CC BY 4.0",
    )


def _read(path: Path, size: int, splits: Sequence[str]) -> Arrays:
    images, labels = [], []
    with blame(path), zipfile.ZipFile(path) as archive:
        for split in splits:
            x, y = (read_npz_array(archive, f"{split}_{what}", path) for what in ("images", "labels"))
            if x.dtype != np.uint8 or x.shape[1:] not in ((size, size), (size, size, 3)):
                raise DatasetCorrupt(
                    f"{path}: {split}_images is {x.dtype} {x.shape}, expected uint8 (N, {size}, {size}) "
                    f"or (N, {size}, {size}, 3)"
                )
            if y.dtype != np.uint8 or y.shape != (len(x), 1):
                raise DatasetCorrupt(
                    f"{path}: {split}_labels is {y.dtype} {y.shape}, expected uint8 ({len(x)}, 1), one label each"
                )
            images.append(x.reshape(len(x), size, size, -1) if len(x) else x.reshape(0, size, size, 1))
            labels.append(y[:, 0].astype(np.int32))
        if len({x.shape[-1] for x in images}) > 1:
            raise DatasetCorrupt(f"{path}: grey and colour images in one file")
        return {
            "images": np.concatenate(images),
            "labels": np.concatenate(labels),
            "num_train": np.array([sum(len(y) for s, y in zip(splits, labels, strict=True) if s != "test")]),
        }
