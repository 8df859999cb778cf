"""Reading files that may be damaged: bounded sizes, one kind of error."""

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_geo.data._source import DatasetCorrupt, IntArray


@contextmanager
def blame(where: Path | str, *kinds: type[Exception]) -> Iterator[None]:
    """Turn errors of these kinds, all unless given, into a DatasetCorrupt that names the file.

    All kinds are for foreign decoders, which have many: Pillow, pyarrow, h5py, sqlite3, tarfile. A missing
    package stays an ImportError.

    Raises:
        DatasetCorrupt: in place of the error.
    """
    try:
        yield
    except (DatasetCorrupt, ImportError):
        raise
    except Exception as error:
        if kinds and not isinstance(error, kinds):
            raise
        reason = " ".join(str(error).split())[:200]
        raise DatasetCorrupt(f"{where}: cannot be read ({type(error).__name__}: {reason})") from error


def read_bytes(path: Path, limit: int) -> bytes:
    """A whole file, unless it is larger than ``limit`` bytes.

    Raises:
        DatasetCorrupt: too large, or unreadable.
    """
    with blame(path, OSError), path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise DatasetCorrupt(f"{path}: more than the {limit} bytes it may have")
    return content


def read_exactly(path: Path, size: int) -> bytes:
    """A whole file of known size.

    Raises:
        DatasetCorrupt: another size, or unreadable.
    """
    with blame(path, OSError):
        found = path.stat().st_size
    if found != size:
        raise DatasetCorrupt(f"{path}: holds {found} bytes, expected exactly {size}")
    return read_bytes(path, size)


def check_labels(where: Path | str, labels: IntArray, num_classes: int, per_class: int | None = None) -> None:
    """Raise a DatasetCorrupt unless labels are in range and, where known, equally frequent."""
    if labels.size and not (labels.min() >= 0 and labels.max() < num_classes):
        raise DatasetCorrupt(
            f"{where}: labels must be in [0, {num_classes}), got {labels.min()} to {labels.max()}"
        )
    counts = np.bincount(labels, minlength=num_classes)
    if per_class is not None and (counts != per_class).any():
        worst = int(np.abs(counts - per_class).argmax())
        raise DatasetCorrupt(f"{where}: {counts[worst]} examples of class {worst}, expected {per_class} of each")


def need(module: str, extra: str, what: str) -> Any:
    """An optional package.

    Raises:
        ImportError: it is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(f"{what} needs {module}: pip install 'fedjax_geo[{extra}]'") from error


def unique_names(where: Path | str, names: Sequence[str], number: int) -> tuple[str, ...]:
    """The names, unless they are not so many different ones.

    Raises:
        DatasetCorrupt: too few, too many, empty or repeated.
    """
    if len(names) != number or len(set(names)) != number or not all(names):
        raise DatasetCorrupt(f"{where}: expected {number} different names, got {len(set(names))} in {len(names)}")
    return tuple(names)
