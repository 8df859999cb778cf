"""Reading IDX, the format of MNIST and its relatives.

Two zero bytes, a type byte (8 is uint8), the number of dimensions, each dimension as a big-endian uint32,
then the values row by row. Files may be gzipped.
"""

import gzip
import hashlib
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedjax_geo.data._source import DatasetCorrupt


def read_idx(path: Path, shape: tuple[int, ...], sha256: str | None = None) -> npt.NDArray[np.uint8]:
    """Read a file of known shape, and known content where a digest is given.

    The header is compared before anything is allocated by its word, and no more is read than it should hold.

    Args:
        path: an IDX file of uint8, gzipped if the name ends in ``.gz``.
        shape: what the header must say.
        sha256: hexadecimal digest of the whole file, decompressed.

    Returns:
        uint8 array of the given shape.

    Raises:
        DatasetCorrupt: anything else than that file.
    """
    header = struct.pack(f">4B{len(shape)}I", 0, 0, 8, len(shape), *shape)
    expected = len(header) + math.prod(shape)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(expected + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DatasetCorrupt(f"{path}: damaged gzip data ({error})") from error
    if content[:4] != header[:4]:
        found, wanted = content[:4].hex(" "), header[:4].hex(" ")
        raise DatasetCorrupt(f"{path}: starts with bytes {found}, expected {wanted}")
    if content[: len(header)] != header:
        dimensions = np.frombuffer(content[4 : len(header)].ljust(4 * len(shape), b"\0"), ">u4").tolist()
        raise DatasetCorrupt(f"{path}: the header says shape {tuple(dimensions)}, expected {shape}")
    if len(content) != expected:
        problem = "truncated" if len(content) < expected else "followed by surplus bytes"
        raise DatasetCorrupt(f"{path}: {problem}, expected exactly {expected} bytes")
    digest = hashlib.sha256(content).hexdigest()
    if sha256 is not None and digest != sha256:
        raise DatasetCorrupt(f"{path}: sha256 is {digest}, expected {sha256}")
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape)
