"""Reading the pickles of CIFAR without running what is in them.

Only the instructions such files consist of are known here, and nothing named in a file is ever imported or
called: NumPy's array and dtype are replaced by records of their parts. The pure Python reader is used because
the compiled one allocates by the word of the file.
"""

import io
import pickle
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from fedjax_geo.data._guard import blame
from fedjax_geo.data._source import DatasetCorrupt

_INSTRUCTIONS = """
    PROTO FRAME MARK STOP EMPTY_DICT EMPTY_LIST EMPTY_TUPLE NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 INT
    LONG1 STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8 UNICODE BINUNICODE SHORT_BINUNICODE
    TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS SETITEM SETITEMS PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET
    LONG_BINGET GLOBAL STACK_GLOBAL REDUCE BUILD
"""
_GLOBALS = {
    ("numpy.core.multiarray", "_reconstruct"): "array",
    ("numpy._core.multiarray", "_reconstruct"): "array",
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("_codecs", "encode"): "bytes",  # how protocol 2 stores the bytes of Python 3
}


class _Global:
    """Something the file names."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind


class _Dtype:
    """A dtype's name; what the file adds to it is dropped."""

    __slots__ = ("name",)

    def __init__(self, name: object) -> None:
        self.name = name

    def __setstate__(self, state: object) -> None:
        del state


class _Array:
    """An array's parts."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state: Any = None

    def __setstate__(self, state: object) -> None:
        self.state = state


_Python: Any = pickle._Unpickler  # as opposed to the compiled one


class _Reader(_Python):
    """Unpickler that builds nothing but containers, numbers, text, bytes and the records above."""

    def find_class(self, module: str, name: str) -> _Global:
        kind = _GLOBALS.get((module, name))
        if kind is None:
            raise pickle.UnpicklingError(f"names {module}.{name}, which has no place in a data set")
        return _Global(kind)

    def refuse(self) -> NoReturn:
        raise pickle.UnpicklingError("an instruction that has no place in a data set")

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        kind = getattr(self.stack[-1], "kind", None)
        if kind == "array":
            made: object = _Array()
        elif kind == "dtype":
            made = _Dtype(arguments[0])
        elif kind == "bytes" and arguments[1] in ("latin1", b"latin1"):
            made = arguments[0].encode("latin1")
        elif kind == "bytes" and arguments[0] == "":
            made = b""
        else:
            self.refuse()
        self.stack[-1] = made

    def load_build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], _Array | _Dtype):
            self.refuse()
        self.stack[-1].__setstate__(state)

    dispatch = dict.fromkeys(range(256), refuse) | {
        ord(getattr(pickle, name)): _Python.dispatch[ord(getattr(pickle, name))] for name in _INSTRUCTIONS.split()
    }
    dispatch[ord(pickle.REDUCE)] = load_reduce
    dispatch[ord(pickle.BUILD)] = load_build


def read_pickle(where: Path | str, content: bytes) -> dict[bytes, Any]:
    """The dictionary in a pickle, with bytes as keys.

    Raises:
        DatasetCorrupt: anything but a dictionary of plain values and arrays.
    """
    with blame(where):
        value = _Reader(io.BytesIO(content), encoding="bytes").load()
        if isinstance(value, dict):
            return {key.encode() if isinstance(key, str) else key: values for key, values in value.items()}
    raise DatasetCorrupt(f"{where}: holds a {type(value).__name__}, expected a dictionary")


def as_uint8(where: Path | str, value: object, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """An array out of such a dictionary.

    Raises:
        DatasetCorrupt: not uint8, or of another shape.
    """
    with blame(where):
        state = value.state if isinstance(value, _Array) else None
        if not isinstance(state, tuple) or len(state) != 5:
            raise DatasetCorrupt(f"{where}: no array where pixels should be")
        _, found, dtype, by_columns, content = state
        if isinstance(content, str):
            content = content.encode("latin1")
        if tuple(found) != shape or getattr(dtype, "name", None) not in ("u1", b"u1", "uint8") or by_columns:
            raise DatasetCorrupt(f"{where}: array of shape {tuple(found)}, expected uint8 {shape} by rows")
        return np.frombuffer(content, np.uint8).reshape(shape)
