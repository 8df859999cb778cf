"""FEMNIST: S. Caldas et al., LEAF, 2018, arXiv 1812.01097; handwritten characters by writer, 28x28 pixels.

The same digits and letters circulate in four forms that differ in which writers and examples they kept, in the
order, and in what is white. Here ink is always 255 and paper 0. Whether a file has it the other way round
is told from the border of its images, which is nearly all paper.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedjax_geo.data._cache import Arrays
from fedjax_geo.data._guard import check_labels
from fedjax_geo.data._inputs import MNIST_SCALE
from fedjax_geo.data._source import DatasetCorrupt, IntArray, Source

CHARACTERS = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


def to_uint8(where: Path | str, pixels: npt.NDArray[np.floating]) -> npt.NDArray[np.uint8]:
    """Grey values in [0, 1] as uint8 [n, 28, 28, 1].

    Raises:
        DatasetCorrupt: another number of pixels, or values outside that range.
    """
    if pixels.size % (28 * 28):
        raise DatasetCorrupt(f"{where}: {pixels.size} pixels are no whole number of 28x28 images")
    if not ((pixels >= 0) & (pixels <= 1)).all():
        raise DatasetCorrupt(f"{where}: grey values must be in [0, 1]")
    return np.rint(pixels.reshape(-1, 28, 28, 1) * 255).astype(np.uint8)


def pack(
    where: Path | str, images: npt.NDArray[np.uint8], labels: IntArray, writers: Sequence[str], num_train: int
) -> Arrays:
    """What is cached of a form: ink made 255, and writers numbered in the order they are first met.

    Raises:
        DatasetCorrupt: no examples, or labels out of range.
    """
    if not len(images):
        raise DatasetCorrupt(f"{where}: holds no examples")
    check_labels(where, labels, len(CHARACTERS))
    number: dict[str, int] = {}
    ids = np.array([number.setdefault(writer, len(number)) for writer in writers], np.int32)
    border = np.ones((28, 28, 1), bool)
    border[1:-1, 1:-1] = False
    white = images[:, border].mean() > 127.5
    return {
        "images": 255 - images if white else images,
        "labels": labels.astype(np.int32),
        "writer": ids,
        "names": np.frombuffer("\n".join(" ".join(name.split()) for name in number).encode(), np.uint8),
        "facts": np.array([num_train, white]),
    }


def unpack(name: str, place: Path, arrays: Arrays, *, digits_only: bool = False) -> Source:
    """The source of what was packed."""
    num_train, white = arrays["facts"].tolist()
    classes = CHARACTERS[:10] if digits_only else CHARACTERS
    check_labels(place, arrays["labels"], len(classes))
    return Source(
        images=arrays["images"],
        labels=arrays["labels"],
        class_names=classes,
        prepare=MNIST_SCALE,
        num_train=num_train,
        provenance=f"{name}: {place}, ink = 1 ({'inverted' if white else 'as stored'})",
        licence="public domain (NIST Special Database 19)",
        client_ids=arrays["writer"],
        client_names=tuple(arrays["names"].tobytes().decode().split("\n")),
    )
