"""IDX files written here byte by byte: what is right is read, what is wrong is named."""

import gzip
import hashlib
import struct

import numpy as np
import pytest

from fedjax_geo.data import DatasetCorrupt
from fedjax_geo.data._idx import read_idx

PIXELS = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
GOOD = b"\0\0\x08\x03" + struct.pack(">III", 3, 4, 5) + PIXELS.tobytes()


def read(path, content, shape=(3, 4, 5), sha256=None):
    path.write_bytes(content)
    return read_idx(path, shape, sha256 or hashlib.sha256(GOOD).hexdigest())


def test_plain_and_gzipped(tmp_path):
    np.testing.assert_array_equal(read(tmp_path / "images", GOOD), PIXELS)
    np.testing.assert_array_equal(read(tmp_path / "images.gz", gzip.compress(GOOD)), PIXELS)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "starts with bytes"),
        (b"\0\0\x0d\x03" + GOOD[4:], "00 00 0d 03, expected 00 00 08 03"),
        (b"\0\0\x08\x01" + GOOD[4:], "00 00 08 01"),
        (GOOD[:10], r"shape \(3, \d+, 0\)"),
        (GOOD[:4] + struct.pack(">III", 3, 5, 4) + GOOD[16:], r"shape \(3, 5, 4\), expected \(3, 4, 5\)"),
        (GOOD[:4] + struct.pack(">III", *[2**32 - 1] * 3) + GOOD[16:], r"shape \(4294967295, "),
        (GOOD[:-1], "truncated, expected exactly 76 bytes"),
        (GOOD + b"\0", "surplus bytes"),
        (GOOD[:-1] + b"\0", "sha256"),
    ],
)
def test_wrong_content(tmp_path, content, reason):
    with pytest.raises(DatasetCorrupt, match=rf"images: .*{reason}"):
        read(tmp_path / "images", content)
    with pytest.raises(DatasetCorrupt, match=rf"images\.gz: .*{reason}"):
        read(tmp_path / "images.gz", gzip.compress(content))


def test_damaged_gzip(tmp_path):
    packed = gzip.compress(GOOD)
    for content in (packed[:-12], packed[:12] + b"\xff" * 8 + packed[20:], b"no gzip at all"):
        with pytest.raises(DatasetCorrupt, match=r"images\.gz: damaged gzip data"):
            read(tmp_path / "images.gz", content)


def test_the_digest_is_optional(tmp_path):
    path = tmp_path / "images"
    path.write_bytes(GOOD)
    np.testing.assert_array_equal(read_idx(path, (3, 4, 5)), PIXELS)
