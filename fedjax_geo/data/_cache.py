"""Decode once: arrays that are slow to make are kept as ``.npy`` files and memory-mapped afterwards.

An entry is a folder with one ``.npy`` per array and an index with their checksums. It is written aside and
renamed when complete; an entry that does not fit its index is written anew. Its name holds a hash of all that the
arrays are made from. For a source these are its name, the form of its arrays and its files: their content where
they are few and small, path, size and time of change where they are not (more than 16 files or a gigabyte).
"""

import hashlib
import json
import os
import shutil
import tempfile
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedjax_geo.data._guard import blame

CACHE_VARIABLE = "FEDJAX_GEO_CACHE"
Arrays = dict[str, npt.NDArray[Any]]

_VERSION = 1  # of what builders return
_FEW, _SMALL = 16, 1 << 30  # files, and bytes of all of them, that are hashed by content
_CHUNK = 1 << 24


def cache_root() -> Path:
    """The folder of the cache: ``FEDJAX_GEO_CACHE``, or one in the user's cache."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else Path("~/.cache/fedjax_geo/decoded").expanduser()


def cached(name: str, files: Sequence[Path], build: Callable[[], Arrays]) -> Arrays:
    """Arrays made from files: from the cache, or built now and kept there.

    Args:
        name: of the source and whatever options change its arrays.
        files: everything the arrays are made from.
        build: makes the arrays.

    Returns:
        The arrays, read-only and memory-mapped. If the cache cannot be written, those just built, and a warning.

    Raises:
        DatasetCorrupt: a file cannot be read, or what ``build`` finds.
    """
    return kept(f"{name}-{_fingerprint(name, files)}", build)


def kept(entry: str, build: Callable[[], Arrays]) -> Arrays:
    """Arrays from this entry of the cache, or built now and kept there; see ``cached``."""
    folder = cache_root() / entry
    arrays = _read(folder)
    if arrays is None:
        built = build()
        try:
            _write(folder, built)
        except OSError as error:
            warnings.warn(f"{folder}: what was made cannot be kept ({error})", stacklevel=3)
            return built
        arrays = _read(folder)
        if arrays is None:
            return built
    return arrays


def _fingerprint(name: str, files: Sequence[Path]) -> str:
    digest = hashlib.sha256(f"{_VERSION} {name} {len(files)}".encode())
    with blame(" or ".join(map(str, files[:2])), OSError):
        facts = [file.stat() for file in files]
        by_content = len(files) <= _FEW and sum(fact.st_size for fact in facts) <= _SMALL
        for file, fact in zip(files, facts, strict=True):
            if by_content:
                with file.open("rb") as stream:
                    digest.update(hashlib.file_digest(stream, "sha256").digest())
            else:
                digest.update(f"{file.resolve()}|{fact.st_size}|{fact.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:24]


def _checksum(array: npt.NDArray[Any]) -> int:
    content = array.reshape(-1).view(np.uint8)
    value = 0
    for start in range(0, len(content), _CHUNK):
        value = zlib.crc32(content[start : start + _CHUNK].data, value)
    return value


def _read(folder: Path) -> Arrays | None:
    """The entry, or None where there is none or a damaged one."""
    try:
        arrays = {}
        for name, checksum in json.loads((folder / "index.json").read_text("utf-8")).items():
            mapped = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            array = mapped.view(np.ndarray)
            if _checksum(array) != checksum:
                return None
            arrays[name] = array
        return arrays or None
    except (OSError, EOFError, ValueError, TypeError, AttributeError, OverflowError, RuntimeWarning):
        return None


def _write(folder: Path, arrays: Arrays) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder.parent))
    try:
        for name, array in arrays.items():
            np.save(aside / f"{name}.npy", array, allow_pickle=False)
        index = {name: _checksum(np.ascontiguousarray(array)) for name, array in arrays.items()}
        (aside / "index.json").write_text(json.dumps(index), "utf-8")
        if _read(folder) is None:  # not written by somebody else in the meantime
            shutil.rmtree(folder, ignore_errors=True)
            aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
