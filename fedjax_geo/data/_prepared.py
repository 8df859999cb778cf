"""Folders that tensorflow-datasets has prepared, read without TensorFlow; TFRecord even without the former.

Its examples are in an order of its own, so the same partition and seed give other clients than the original
files do.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedjax_geo.data._cache import Arrays, cached
from fedjax_geo.data._cifar import CIFAR10, CIFAR100
from fedjax_geo.data._emnist import CUTS
from fedjax_geo.data._fashion_mnist import CLASSES
from fedjax_geo.data._guard import blame, check_labels, need, read_bytes, unique_names
from fedjax_geo.data._images import decode
from fedjax_geo.data._inputs import FASHION_SCALE, MNIST_SCALE
from fedjax_geo.data._medmnist import NAMES
from fedjax_geo.data._places import roots
from fedjax_geo.data._prepare import Scale, scale
from fedjax_geo.data._source import DatasetCorrupt, Source
from fedjax_geo.data._tfrecord import parse_example, read_tfrecord

_DIGITS = tuple("0123456789")


class _Facts(NamedTuple):
    """What is not in a prepared folder."""

    builder: str
    shape: tuple[int, int, int]
    prepare: Scale
    licence: str
    classes: tuple[str, ...] | int  # names, or how many there are in the folder
    label: str = "label"
    parts: Sequence[str] = ("train", "test")
    first_label: int = 0
    transposed: bool = False


TFDS = {
    "cifar10": _Facts("cifar10", (32, 32, 3), CIFAR10.prepare, "not stated by the authors", 10),
    "cifar100": _Facts("cifar100", (32, 32, 3), CIFAR100[False].prepare, "not stated by the authors", 100),
    "cifar100_coarse": _Facts(
        "cifar100", (32, 32, 3), CIFAR100[True].prepare, "not stated by the authors", 20, label="coarse_label"
    ),
    "fashion_mnist": _Facts("fashion_mnist", (28, 28, 1), FASHION_SCALE, "MIT", CLASSES),
    "mnist": _Facts("mnist", (28, 28, 1), MNIST_SCALE, "CC BY-SA 3.0", _DIGITS),
    "pneumoniamnist": _Facts(
        "pneumonia_mnist",
        (28, 28, 1),
        scale(255),
        "CC BY 4.0",
        NAMES["pneumoniamnist"],
        parts=("train", "val", "test"),
    ),
    "stl10": _Facts("stl10", (96, 96, 3), scale(255), "ImageNet's terms of access: non-commercial", 10),
    **{
        f"emnist_{cut}": _Facts(
            f"emnist/{cut}",
            (28, 28, 1),
            MNIST_SCALE,
            "public domain (NIST Special Database 19)",
            tuple(names),
            first_label=1 if cut == "letters" else 0,
            transposed=True,
        )
        for cut, (_, _, names, _) in CUTS.items()
    },
}


def read_prepared(name: str, data_dir: str | os.PathLike[str] | None) -> Source | None:
    """A data set prepared before, of several versions the latest; None if there is none.

    Raises:
        DatasetCorrupt: a file is damaged or not the expected one.
    """
    facts = TFDS.get(name)
    folder = None if facts is None else _find(facts.builder, data_dir)
    if facts is None or folder is None:
        return None
    shards = {part: _shards(folder, facts.builder, part) for part in facts.parts}
    files = [path for paths, _ in shards.values() for path in paths]
    arrays = cached(f"tfds-{name}", [folder / "dataset_info.json", *files], lambda: _decode(facts, shards))
    names = facts.classes
    if isinstance(names, int):
        file = folder / f"{facts.label}.labels.txt"
        with blame(file, UnicodeDecodeError):
            names = unique_names(file, read_bytes(file, 1 << 16).decode().split(), names)
    return Source(
        images=arrays["images"],
        labels=arrays["labels"],
        class_names=names,
        prepare=facts.prepare,
        num_train=sum(count for part, (_, count) in shards.items() if part != "test"),
        provenance=f"{name}: {folder} (tensorflow-datasets, in its order)",
        licence=facts.licence,
    )


def _find(builder: str, data_dir: str | os.PathLike[str] | None) -> Path | None:
    places = [tfds_dir(None), *roots(None)] if data_dir is None else [Path(data_dir)]
    for place in places:
        versions = [path.parent for path in (place / builder).glob("*.*.*/dataset_info.json")]
        numbered = [path for path in versions if re.fullmatch(r"\d{1,9}\.\d{1,9}\.\d{1,9}", path.name)]
        if numbered:
            return max(numbered, key=lambda path: tuple(map(int, path.name.split("."))))
    return None


def tfds_dir(data_dir: str | os.PathLike[str] | None) -> Path:
    """Where tensorflow-datasets keeps what it prepares."""
    return Path(data_dir or os.environ.get("TFDS_DATA_DIR") or Path("~/tensorflow_datasets").expanduser())


def _shards(folder: Path, builder: str, part: str) -> tuple[list[Path], int]:
    """Files of a part, and the number of examples in them."""
    path = folder / "dataset_info.json"
    lengths: list[int] = []
    kind = ""
    with blame(path):
        info = json.loads(read_bytes(path, 1 << 24))
        lengths = [int(n) for split in info["splits"] if split["name"] == part for n in split["shardLengths"]]
        kind = str(info.get("fileFormat", "tfrecord"))
    if kind not in ("tfrecord", "array_record") or not lengths or min(lengths) < 0:
        raise DatasetCorrupt(f"{path}: no part {part!r} as tfrecord or array_record (format {kind!r})")
    stem = f"{builder.split('/')[0]}-{part}.{kind}-"
    files = sorted(folder.glob(f"{stem}?????-of-?????"))
    if [file.name for file in files] != [f"{stem}{i:05}-of-{len(lengths):05}" for i in range(len(lengths))]:
        raise DatasetCorrupt(f"{folder}: {len(files)} files {stem}*, expected {len(lengths)}")
    return files, sum(lengths)


def _records(path: Path) -> Iterator[bytes]:
    if ".tfrecord-" in path.name:
        yield from read_tfrecord(path)
        return
    module = need("array_record.python.array_record_data_source", "tfds", "reading array_record files")
    with blame(path), module.ArrayRecordDataSource([str(path)]) as source:
        yield from source.__getitems__(list(range(len(source))))


def _decode(facts: _Facts, shards: dict[str, tuple[list[Path], int]]) -> Arrays:
    height, width, channels = facts.shape
    mode = "L" if channels == 1 else "RGB"
    images: list[npt.NDArray[np.uint8]] = []
    labels: list[int] = []
    for part, (files, expected) in shards.items():
        before = len(images)
        for path in files:
            for record in _records(path):
                example = parse_example(path, record)
                image, label = example.get("image", []), example.get(facts.label, [])
                if len(image) != 1 or len(label) != 1 or isinstance(image[0], int) or isinstance(label[0], bytes):
                    raise DatasetCorrupt(f"{path}: an example without one image and one {facts.label}")
                images.append(decode(image[0], path, mode=mode, shape=(height, width)))
                labels.append(label[0] - facts.first_label)
        if len(images) - before != expected:
            raise DatasetCorrupt(
                f"{files[0].parent}: {len(images) - before} examples in {part}, expected {expected}"
            )
    classes = facts.classes if isinstance(facts.classes, int) else len(facts.classes)
    with blame(files[0].parent, OverflowError):
        y = np.array(labels, np.int64)
    check_labels(files[0].parent, y, classes)
    x = np.array(images, np.uint8).reshape(-1, *facts.shape)
    return {"images": x.transpose(0, 2, 1, 3) if facts.transposed else x, "labels": y.astype(np.int32)}
