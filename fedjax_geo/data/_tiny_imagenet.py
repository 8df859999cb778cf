"""TinyImageNet-200: Stanford CS231n, 2015; 64x64 pixels, from ImageNet. The official test part has no labels."""

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedjax_geo.data._archive import read_zip_member
from fedjax_geo.data._cache import Arrays, cached
from fedjax_geo.data._guard import blame, check_labels, read_bytes, unique_names
from fedjax_geo.data._images import decode_all
from fedjax_geo.data._places import find_form, put_into
from fedjax_geo.data._prepare import scale
from fedjax_geo.data._source import DatasetCorrupt, Source

_CLASSES = 200
_TRAIN, _VALIDATION = 500, 50  # per class
_LIMIT = 1 << 23  # bytes of a member; words.txt is the largest
_HINT = "Get tiny-imagenet-200.zip from http://cs231n.stanford.edu/tiny-imagenet-200.zip and " + put_into(
    "it, or the folder in it,"
)

_Read = Callable[[str], bytes]


def tiny_imagenet(data_dir: str | os.PathLike[str] | None = None) -> Source:
    """110,000 colour images of 64x64 pixels, 200 classes: training part, and validation part as the test.

    Args:
        data_dir: the only place to look for the files; None searches the usual places. Both the original
            layout of the validation part and one folder per class are understood.

    Raises:
        DatasetNotFound: the files are in none of the places searched.
        DatasetCorrupt: a file is damaged or not the expected one.
    """
    form, matches = find_form(
        {"folder": ["wnids.txt", "train", "val"], "archive": ["tiny-imagenet-200.zip"]},
        ("tiny-imagenet-200", "tiny_imagenet", "tiny_imagenet/tiny-imagenet-200"),
        data_dir=data_dir,
        name="tiny_imagenet",
        hint=_HINT,
    )
    path = matches[0][0]
    if form == "folder":
        place = path.parent
        used = (
            place / "wnids.txt",
            place / "words.txt",
            *(place / "train").rglob("*"),
            *(place / "val").rglob("*"),
        )
        files = sorted(file for file in used if file.is_file())
        names = [file.relative_to(place).as_posix() for file in files]
        arrays, classes = _read(place, files, names, lambda name: read_bytes(place / name, _LIMIT))
    else:
        place = path
        with blame(path), zipfile.ZipFile(path) as archive:
            members = {info.filename.partition("/")[2]: info for info in archive.infolist() if not info.is_dir()}
            arrays, classes = _read(
                path,
                [path],
                sorted(members),
                lambda name: read_zip_member(archive, members[name], f"{path}: {name}", _LIMIT),
            )
    return Source(
        images=arrays["images"],
        labels=arrays["labels"],
        class_names=classes,
        prepare=scale(255),
        num_train=_CLASSES * _TRAIN,
        provenance=f"tiny_imagenet: {place}, validation part as test",
        licence="ImageNet's terms of access: non-commercial research and education",
    )


def _read(place: Path, files: list[Path], names: list[str], read: _Read) -> tuple[Arrays, tuple[str, ...]]:
    """Arrays and class names, from file names relative to the data set's folder."""
    lines = {}
    for name in ("wnids.txt", "words.txt", "val/val_annotations.txt"):
        with blame(f"{place}: {name}", UnicodeDecodeError):
            lines[name] = read(name).decode().splitlines() if name in names else []
    ids = unique_names(f"{place}: wnids.txt", [line.strip() for line in lines["wnids.txt"]], _CLASSES)
    words = dict(line.partition("\t")[::2] for line in lines["words.txt"])
    annotated = dict([*line.split("\t"), ""][:2] for line in lines["val/val_annotations.txt"])
    label_of = {wnid: label for label, wnid in enumerate(ids)}

    def part(folder: str) -> tuple[list[str], list[int]]:
        images = [name for name in names if name.startswith(f"{folder}/") and name.lower().endswith(".jpeg")]
        wnids = [name.split("/")[1] for name in images]
        if set(wnids) == {"images"}:
            wnids = [annotated.get(name.split("/")[-1], "") for name in images]
        for name, wnid in zip(images, wnids, strict=True):
            if wnid not in label_of:
                raise DatasetCorrupt(f"{place}: {name} is of class {wnid!r}, which is not in wnids.txt")
        return images, [label_of[wnid] for wnid in wnids]

    def build() -> Arrays:
        (train, train_labels), (val, val_labels) = part("train"), part("val")
        check_labels(f"{place}: train", np.array(train_labels, np.int64), _CLASSES, _TRAIN)
        check_labels(f"{place}: val", np.array(val_labels, np.int64), _CLASSES, _VALIDATION)
        return {
            "images": decode_all(train + val, read, shape=(64, 64)),
            "labels": np.array(train_labels + val_labels, np.int32),
        }

    return cached("tiny_imagenet", files, build), tuple(words.get(wnid, "").strip() or wnid for wnid in ids)
