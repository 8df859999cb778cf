"""FEMNIST as FedJAX distributes it: SQLite files with one row per writer.

A row's data is a zlib stream of msgpack; arrays are its extension type 1: shape, name of the dtype, bytes.
"""

import math
import os
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedjax_geo.data._cache import Arrays, cached
from fedjax_geo.data._femnist import pack, to_uint8, unpack
from fedjax_geo.data._guard import blame, need
from fedjax_geo.data._places import find_form, put_into
from fedjax_geo.data._source import DatasetCorrupt, IntArray, Source

_LIMIT = 1 << 26  # bytes of one writer; real ones have at most a few hundred images of 3 kB
_DTYPES = ("uint8", "int32", "int64", "float32", "float64")
_HINT = (
    "Get federated_emnist{}_train.sqlite and _test.sqlite (fedjax.datasets.emnist.load_data downloads them) and "
    + put_into("them")
)


def femnist_fedjax(data_dir: str | os.PathLike[str] | None = None, *, digits_only: bool = False) -> Source:
    """Characters of 3,400 writers (or digits of 3,383), official training and test part pooled.

    Clients are named as stored, ``<hash>:f####_##``; numbers from 2100 to 2599 are high-school students, the
    others census employees.

    Args:
        data_dir: the only place to look for the files; None searches the usual places.
        digits_only: read the files with ten classes.

    Raises:
        DatasetNotFound: the files are in none of the places searched.
        DatasetCorrupt: a file is damaged or not the expected one.
        ImportError: msgpack is not installed.
    """
    suffix = "_digitsonly" if digits_only else ""
    name = "femnist_fedjax_digits" if digits_only else "femnist_fedjax"
    _, matches = find_form(
        {"files": [f"federated_emnist{suffix}_train.sqlite", f"federated_emnist{suffix}_test.sqlite"]},
        ("femnist_fedjax", "femnist", "fedjax"),
        data_dir=data_dir,
        name=name,
        hint=_HINT.format(suffix),
    )
    paths = [match[0] for match in matches]
    return unpack(name, paths[0].parent, cached(name, paths, lambda: _read(paths)), digits_only=digits_only)


def _read(paths: list[Path]) -> Arrays:
    images: list[npt.NDArray[np.uint8]] = []
    labels: list[IntArray] = []
    writers: list[str] = []
    num_train = 0
    for path in paths:
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        with blame(path), closing(sqlite3.connect(uri, uri=True)) as base:
            base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LIMIT)
            kind = base.execute("SELECT type, sql FROM sqlite_schema WHERE name = 'federated_data'").fetchone()
            if kind is None or kind[0] != "table" or not kind[1].upper().startswith("CREATE TABLE"):
                raise DatasetCorrupt(f"{path}: has no table federated_data")
            for writer, data in base.execute("SELECT client_id, data FROM federated_data ORDER BY rowid"):
                name = writer.decode() if isinstance(writer, bytes) else str(writer)
                x, y = _writer(f"{path}: {name}", data)
                images.append(x)
                labels.append(y)
                writers += [name] * len(y)
                num_train += len(y) if path == paths[0] else 0
    if not images:
        raise DatasetCorrupt(f"{paths[0]}: holds no writers")
    return pack(paths[0].parent, np.concatenate(images), np.concatenate(labels), writers, num_train)


def _writer(where: str, data: bytes) -> tuple[npt.NDArray[np.uint8], IntArray]:
    msgpack = need("msgpack", "femnist", "reading FedJAX files")

    def array(code: int, content: bytes) -> npt.NDArray[Any]:
        shape, dtype, values = msgpack.unpackb(content)
        dtype = dtype.decode() if isinstance(dtype, bytes) else dtype
        if code != 1 or dtype not in _DTYPES or math.prod(shape) * np.dtype(dtype).itemsize != len(values):
            raise DatasetCorrupt(f"{where}: extension {code} with {dtype} {shape} in {len(values)} bytes")
        return np.frombuffer(values, dtype).reshape(shape)

    with blame(where):
        stream = zlib.decompressobj()
        packed = stream.decompress(data, _LIMIT)
        if not stream.eof:
            raise DatasetCorrupt(f"{where}: truncated, or more than {_LIMIT} bytes")
        stored = msgpack.unpackb(packed, ext_hook=array)
        x, y = stored["pixels"], stored["label"]
        if x.shape[1:] not in ((28, 28), (28, 28, 1)) or y.shape != x.shape[:1] or y.dtype.kind not in "iu":
            raise DatasetCorrupt(f"{where}: pixels {x.shape} and {y.dtype} labels {y.shape}")
        return to_uint8(where, x / 255 if x.dtype == np.uint8 else x), y.astype(np.int64)
