"""Reads named arrays of a file: ``.safetensors`` or ``.npz``."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from zipfile import BadZipFile

import jax.numpy as jnp
import numpy as np

Arrays = dict[str, np.ndarray]

_DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(jnp.bfloat16),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("bool"),
}


def read_arrays(path: str | Path) -> Arrays:
    """All arrays of a file, by name.

    A safetensors file is eight bytes with the length of a header, little end first, a header in JSON of types,
    shapes and places, and the numbers.

    Args:
      path: ends in ``.safetensors`` or ``.npz``.

    Returns:
      The arrays, for reading only.

    Raises:
      ValueError: if the name ends otherwise, or if the file is not what its name says.
      OSError: if the file cannot be read.
    """
    path = Path(path)
    if path.suffix not in _READERS:
        raise ValueError(f"{path} must end in {' or '.join(_READERS)}; a pickled file has to be converted first")
    try:
        return _READERS[path.suffix](path)
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, BadZipFile) as error:
        raise ValueError(f"{path} is not a whole {path.suffix} file: {error}") from error


def _npz(path: Path) -> Arrays:
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _safetensors(path: Path) -> Arrays:
    data = path.read_bytes()
    if len(data) < 8 or (end := 8 + int.from_bytes(data[:8], "little")) > len(data):
        raise ValueError("its header is longer than the file")
    header = json.loads(data[8:end])
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    header.pop("__metadata__", None)
    numbers = memoryview(data)[end:]
    return {name: _array(name, numbers, **entry) for name, entry in header.items()}


def _array(name: str, data: memoryview, *, dtype: str, shape: list[int], data_offsets: list[int]) -> np.ndarray:
    if dtype not in _DTYPES:
        raise ValueError(f"{name} has type {dtype}, which is not one of {list(_DTYPES)}")
    (start, stop), size = data_offsets, math.prod(shape) * _DTYPES[dtype].itemsize
    if not 0 <= start <= stop <= len(data) or stop - start != size:
        raise ValueError(f"{name} of shape {shape} and type {dtype} is at bytes {data_offsets} of {len(data)}")
    return np.frombuffer(data[start:stop], _DTYPES[dtype]).reshape(shape)


_READERS: dict[str, Callable[[Path], Arrays]] = {".safetensors": _safetensors, ".npz": _npz}
