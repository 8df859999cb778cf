"""Reading TFRecord files and the tf.train.Example messages in them, without TensorFlow.

A record is its length (8 bytes), the masked CRC-32C of that (4), the content, and its CRC (4), which is not
checked: images carry their own. A message is a list of numbered fields; of it, only what Example needs is
understood.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from fedjax_geo.data._guard import blame
from fedjax_geo.data._source import DatasetCorrupt

Feature = list[bytes] | list[int]


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC = _crc_table()


def masked_crc(content: bytes) -> int:
    """CRC-32C as TFRecord stores it."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_tfrecord(path: Path) -> Iterator[bytes]:
    """The records of a file.

    Raises:
        DatasetCorrupt: a length that is damaged or beyond the end of the file.
    """
    with blame(path, OSError), path.open("rb") as file:
        left = path.stat().st_size
        while header := file.read(12):
            left -= len(header) + 4
            if len(header) < 12 or masked_crc(header[:8]) != struct.unpack_from("<I", header, 8)[0]:
                raise DatasetCorrupt(f"{path}: damaged length of a record, {max(left, 0)} bytes before the end")
            (length,) = struct.unpack_from("<Q", header)
            left -= length
            if left < 0:
                raise DatasetCorrupt(f"{path}: a record of {length} bytes reaches {-left} beyond the end")
            yield file.read(length)
            file.read(4)


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """A number and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise ValueError("a number of more than 10 bytes")


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a message."""
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(content, at)
            yield tag >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, at = _varint(content, at)
        if size is None or size > len(content) - at:
            raise ValueError("a field of unknown kind or beyond the end")
        yield tag >> 3, content[at : at + size]
        at += size


def _messages(content: bytes, number: int) -> Iterator[bytes]:
    for found, value in _fields(content):
        if found == number:
            if not isinstance(value, bytes):
                raise ValueError("a number where a message should be")
            yield value


def _integers(content: bytes) -> list[int]:
    values: list[int] = []
    for number, value in _fields(content):
        if number == 1 and isinstance(value, int):
            values.append(value)
        elif number == 1 and isinstance(value, bytes):
            at = 0
            while at < len(value):
                single, at = _varint(value, at)
                values.append(single)
    return [value - (1 << 64) if value >> 63 else value for value in values]


def parse_example(where: Path | str, content: bytes) -> dict[str, Feature]:
    """Texts and whole numbers of a tf.train.Example, by name; floating-point ones are left out.

    Raises:
        DatasetCorrupt: no such message.
    """
    features: dict[str, Feature] = {}
    with blame(where, ValueError, IndexError):
        for entries in _messages(content, 1):
            for entry in _messages(entries, 1):
                name = b"".join(_messages(entry, 1)).decode()
                for feature in _messages(entry, 2):
                    for texts in _messages(feature, 1):
                        features[name] = list(_messages(texts, 1))
                    for numbers in _messages(feature, 3):
                        features[name] = _integers(numbers)
    return features
