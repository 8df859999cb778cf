"""Reading NumPy's ``.npy`` and ``.npz`` with every size checked before anything is allocated. Never pickles."""

import math
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedjax_geo.data._archive import read_zip_member
from fedjax_geo.data._guard import blame
from fedjax_geo.data._source import DatasetCorrupt

_LONGEST = 1 << 12  # bytes of a header
_HEADER = re.compile(
    rb"\{'descr': '[<|]([a-z]\d{1,2})', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,18},? ?){0,8})\), \} *\n"
)


def npy_header(where: Path | str, start: bytes, size: int) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape, dtype and position of the values.

    Args:
        where: for the message.
        start: the first bytes of the file.
        size: of the whole file.

    Raises:
        DatasetCorrupt: no such file, Fortran order, an object array, or another size than the header says.
    """
    if start[:6] != b"\x93NUMPY" or start[6:8] not in (b"\1\0", b"\2\0"):
        raise DatasetCorrupt(f"{where}: does not start like a .npy file")
    begin = 10 if start[6] == 1 else 12
    length = int.from_bytes(start[8:begin], "little")
    match = _HEADER.fullmatch(start[begin : begin + length]) if length <= _LONGEST else None
    if match is None or match[2] == b"True" or match[1][:1] not in b"buif":
        raise DatasetCorrupt(f"{where}: the header does not describe an array of plain numbers by rows")
    shape = tuple(map(int, re.findall(rb"\d+", match[3])))
    with blame(where):
        dtype = np.dtype(match[1].decode())
    expected = begin + length + math.prod(shape) * dtype.itemsize
    if size != expected:
        raise DatasetCorrupt(f"{where}: holds {size} bytes, expected {expected} for shape {shape} of {dtype}")
    return shape, dtype, begin + length


def map_npy(path: Path) -> npt.NDArray[Any]:
    """A ``.npy`` file, memory-mapped and read-only.

    Raises:
        DatasetCorrupt: no such file.
    """
    with blame(path), path.open("rb") as file:
        shape, dtype, offset = npy_header(path, file.read(_LONGEST + 12), path.stat().st_size)
        if 0 in shape:
            return np.zeros(shape, dtype)
        return np.memmap(file, dtype, "r", offset, shape).view(np.ndarray)


def read_npz_array(archive: zipfile.ZipFile, name: str, where: Path) -> npt.NDArray[Any]:
    """One array of an ``.npz`` file.

    Raises:
        DatasetCorrupt: it is missing or damaged.
    """
    full = f"{where}: {name}"
    with blame(full, KeyError):
        info = archive.getinfo(f"{name}.npy")
    with blame(full), archive.open(info) as file:
        shape, dtype, offset = npy_header(full, file.read(_LONGEST + 12), info.file_size)
    content = read_zip_member(archive, info, full, info.file_size)
    with blame(full):
        return np.frombuffer(content, dtype, offset=offset).reshape(shape)
