"""Data sets by name."""

import difflib
import os
from collections.abc import Callable

from fedjax_geo.data._digits_forms import digits_forms
from fedjax_geo.data._fashion_mnist import fashion_mnist
from fedjax_geo.data._source import Source

SOURCES: dict[str, Callable[[str | os.PathLike[str] | None], Source]] = {
    "digits_forms": lambda _: digits_forms(),
    "fashion_mnist": fashion_mnist,
}


def load(name: str, *, data_dir: str | os.PathLike[str] | None = None) -> Source:
    """Load a data set from this machine. Nothing is downloaded and nothing is made up.

    Args:
        name: one of ``digits_forms`` (shipped with the library) and ``fashion_mnist``.
        data_dir: the only place to look for files; None searches the usual places.

    Raises:
        ValueError: an unknown name.
        DatasetNotFound: the files are in none of the places searched.
        DatasetCorrupt: a file is damaged or not the expected one.

    >>> source = load("digits_forms")
    >>> source.images.shape, source.num_classes, len(source.client_names)
    ((1797, 8, 8, 1), 10, 14)
    """
    if name not in SOURCES:
        close = difflib.get_close_matches(name, SOURCES, n=1)
        guess = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown data set {name!r}, known are {', '.join(sorted(SOURCES))}{guess}")
    return SOURCES[name](data_dir)
