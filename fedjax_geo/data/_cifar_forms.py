"""The two forms CIFAR is stored in: fixed records, and pickles. Pixels are planes of red, green and blue."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fedjax_geo.data._guard import blame
from fedjax_geo.data._pickles import as_uint8, read_pickle
from fedjax_geo.data._source import DatasetCorrupt

PIXELS = 3 * 32 * 32

ImagesAndLabels = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


def _by_channel_last(planes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def parse_binary(where: str, content: bytes, count: int, label_bytes: int, label_byte: int) -> ImagesAndLabels:
    """Records of ``label_bytes`` labels and 3,072 pixels."""
    width = label_bytes + PIXELS
    if len(content) != count * width:
        raise DatasetCorrupt(f"{where}: holds {len(content)} bytes, expected exactly {count * width}")
    records = np.frombuffer(content, np.uint8).reshape(count, width)
    return _by_channel_last(records[:, label_bytes:]), records[:, label_byte].astype(np.int64)


def parse_names(where: str, content: bytes) -> list[str]:
    """One name a line."""
    with blame(where, UnicodeDecodeError):
        return content.decode("ascii").split()


def parse_pickle(where: str, content: bytes, count: int, label: str) -> ImagesAndLabels:
    """A dictionary with ``data`` [count, 3072] and a list of labels."""
    stored = read_pickle(where, content)
    pixels, labels = as_uint8(where, stored.get(b"data"), (count, PIXELS)), stored.get(f"{label}s".encode())
    if not isinstance(labels, list) or len(labels) != count or not all(type(value) is int for value in labels):
        raise DatasetCorrupt(f"{where}: no list of {count} whole numbers as {label}s")
    with blame(where, OverflowError):
        return _by_channel_last(pixels), np.array(labels, np.int64)


def parse_pickled_names(where: str, content: bytes, key: str) -> list[str]:
    """A dictionary with a list of names."""
    names: Any = read_pickle(where, content).get(key.encode())
    if not isinstance(names, list) or not all(isinstance(name, bytes | str) for name in names):
        raise DatasetCorrupt(f"{where}: no list of names as {key}")
    with blame(where, UnicodeDecodeError):
        return [name.decode("ascii") if isinstance(name, bytes) else name for name in names]
