"""Data sets by name."""

import difflib
import functools
import os
from collections.abc import Callable

from fedjax_geo.data import _tfds
from fedjax_geo.data._cifar import cifar10, cifar100
from fedjax_geo.data._covid19_cycfed import covid19_cycfed
from fedjax_geo.data._covid19_radiography import covid19_radiography
from fedjax_geo.data._digits_forms import digits_forms
from fedjax_geo.data._emnist import emnist
from fedjax_geo.data._emoji import emoji_vendors
from fedjax_geo.data._fashion_mnist import fashion_mnist
from fedjax_geo.data._femnist_fedjax import femnist_fedjax
from fedjax_geo.data._femnist_leaf import femnist_leaf
from fedjax_geo.data._femnist_parquet import femnist_parquet
from fedjax_geo.data._femnist_tff import femnist_tff
from fedjax_geo.data._image_folder import image_folder
from fedjax_geo.data._medmnist import medmnist
from fedjax_geo.data._mnist import mnist
from fedjax_geo.data._prepared import read_prepared
from fedjax_geo.data._source import DatasetNotFound, Source
from fedjax_geo.data._stl10 import stl10
from fedjax_geo.data._tiny_imagenet import tiny_imagenet

SOURCES: dict[str, Callable[[str | os.PathLike[str] | None], Source]] = {
    "cifar10": cifar10,
    "cifar100": cifar100,
    "cifar100_coarse": functools.partial(cifar100, coarse=True),
    "covid19_cycfed": covid19_cycfed,
    "covid19_radiography": covid19_radiography,
    "dermamnist": functools.partial(medmnist, "dermamnist"),
    "digits_forms": lambda _: digits_forms(),
    "emnist_balanced": functools.partial(emnist, "balanced"),
    "emnist_byclass": functools.partial(emnist, "byclass"),
    "emnist_bymerge": functools.partial(emnist, "bymerge"),
    "emnist_digits": functools.partial(emnist, "digits"),
    "emnist_letters": functools.partial(emnist, "letters"),
    "emnist_mnist": functools.partial(emnist, "mnist"),
    "emoji_vendors": emoji_vendors,
    "fashion_mnist": fashion_mnist,
    "femnist_fedjax": femnist_fedjax,
    "femnist_fedjax_digits": functools.partial(femnist_fedjax, digits_only=True),
    "femnist_leaf": femnist_leaf,
    "femnist_parquet": femnist_parquet,
    "femnist_tff": femnist_tff,
    "femnist_tff_digits": functools.partial(femnist_tff, digits_only=True),
    "image_folder": image_folder,
    "mnist": mnist,
    "organamnist": functools.partial(medmnist, "organamnist"),
    "pneumoniamnist": functools.partial(medmnist, "pneumoniamnist"),
    "stl10": stl10,
    "tiny_imagenet": tiny_imagenet,
}


def load(name: str, data_dir: str | os.PathLike[str] | None = None, *, download: bool = False) -> Source:
    """Load a data set from this machine. Nothing is made up, and downloaded only if asked for.

    The original files come first. Where tensorflow-datasets has a data set and has prepared it before, that is
    read; with ``download`` it is told to do so if nothing is found.

    Args:
        name: one of ``SOURCES``, for example ``digits_forms`` (shipped with the library) or ``cifar10``.
        data_dir: the only place to look for files; None searches the usual places. Downloads go there, too, or
            to where tensorflow-datasets keeps its own.
        download: allow downloading.

    Raises:
        ValueError: an unknown name.
        DatasetNotFound: the files are in none of the places searched, and cannot be or were not to be downloaded.
        DatasetCorrupt: a file is damaged or not the expected one.
        ImportError: a package needed for this data set is not installed.

    >>> source = load("digits_forms")
    >>> source.images.shape, source.num_classes, len(source.client_names)
    ((1797, 8, 8, 1), 10, 14)
    """
    if name not in SOURCES:
        close = difflib.get_close_matches(name, SOURCES, n=1)
        guess = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown data set {name!r}, known are {', '.join(sorted(SOURCES))}{guess}")
    try:
        return SOURCES[name](data_dir)
    except DatasetNotFound as missing:
        source = read_prepared(name, data_dir)
        if source is not None:
            return source
        if not download:
            raise
        try:
            return _tfds.download(name, data_dir)
        except DatasetNotFound as error:
            raise DatasetNotFound(f"{error}. {missing}") from None
