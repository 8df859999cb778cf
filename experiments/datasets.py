"""The federation that settings ask for."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.settings import Config
from fedjax_geo import data
from fedjax_geo._validate import choose
from fedjax_geo.data import Partition, Prepare, Source, Validation
from fedjax_geo.types import FederatedData


def _dirichlet(partition: Partition, config: Config, **more: Any) -> Partition:
    least = {} if config.min_examples is None else {"min_examples": config.min_examples}
    return functools.partial(partition, alpha=config.alpha, **least, **more)


def _writers(source: Source) -> Partition:
    """The CRAFT authors' cut of natural clients."""
    ids = source.client_ids

    def split_writers(labels: np.ndarray, num_clients: int, *, seed: int) -> data.ClientParts:
        if ids is None or len(labels) != len(ids):
            raise ValueError("validation must be 0 with the partition 'writers'")
        return data.split_writers(ids, seed=seed)

    return split_writers


# The authors' schemes redraw until they are content, which can take minutes, so they are kept in the cache.
PARTITIONS: dict[str, Callable[[Config, Source], Partition | None]] = {
    "natural": lambda c, s: None,
    "writers": lambda c, s: _writers(s),
    "iid": lambda c, s: data.iid,
    "dirichlet": lambda c, s: _dirichlet(data.dirichlet, c),
    "within": lambda c, s: data.within_groups(_dirichlet(data.dirichlet, c)),
    "craft": lambda c, s: data.cached_partition(_dirichlet(data.craft_dirichlet, c)),
    "craft-balanced": lambda c, s: data.cached_partition(_dirichlet(data.craft_dirichlet, c, balanced=True)),
    "fedvg": lambda c, s: data.cached_partition(_dirichlet(data.fedvg_dirichlet, c, max_attempts=20_000)),
    "classes": lambda c, s: functools.partial(data.classes_per_client, classes=c.classes),
    "shards": lambda c, s: functools.partial(data.shards, shards_per_client=c.classes),
    "quantity": lambda c, s: _dirichlet(data.quantity_skew, c),
}

IMAGES: dict[str, Callable[[Source], Source]] = {
    "stored": lambda s: s,
    "rgb": data.as_rgb,
    "rgb32": lambda s: data.as_rgb(data.padded(s, 32)),
}

INPUTS: dict[str, Callable[[Source], Prepare | None]] = {
    "stored": lambda s: None,
    "unit": lambda s: data.scale(s.prepare.divisor),
    "crop-flip": lambda s: data.in_order(data.crop_flip(), s.prepare),
    "white-paper": lambda s: data.CRAFT_FEMNIST_INPUTS,
}

# Name of an external data set -> the renaming by which it stands in for another.
SURROGATES = {"stl10": data.STL10_AS_CIFAR10, "cifar100": data.CIFAR100_AS_CIFAR10}

# Beside those of fedjax_geo: FedVG's DermaMNIST, large and without the official validation part.
SOURCES: dict[str, Callable[[Path | None], Source]] = {
    "dermamnist_224": lambda where: data.medmnist("dermamnist", where, size=224, splits=("train", "test")),
}


def load_source(name: str, config: Config) -> Source:
    """A data set from where a configuration says that data is, and in its form of images.

    Raises:
        DatasetNotFound: the files are not on this machine.
        ValueError: an unknown data set or form of images.
    """
    form = choose("images", IMAGES, config.images)
    if name in SOURCES:
        return form(SOURCES[name](config.data_dir))
    return form(data.load(name, config.data_dir, download=config.download))


def _validation(config: Config, source: Source) -> Validation | None:
    if config.surrogate is not None:
        renaming = choose("surrogate", SURROGATES, config.surrogate)
        other = load_source(config.surrogate, config).official_train()
        other = data.relabelled(other, source.class_names, renaming)
        validation = data.surrogate(data.resized(other, source.images.shape[1:3]))
    elif config.validation:
        validation = (data.pooled_clients if config.pooled else data.server_holdout)(config.validation)
    else:
        return None
    return validation if config.tail is None else data.long_tailed(validation, config.tail)


def load(config: Config) -> FederatedData:
    """The federation that a configuration asks for."""
    source = load_source(config.data, config)
    name = config.partition or ("dirichlet" if source.client_ids is None else "natural")
    if name == "writers":
        source = data.writers(source, config.clients, seed=config.seed)
    partition = choose("partition", PARTITIONS, name)(config, source)
    return data.federate(
        source,
        partition,
        num_clients=None if partition is None else config.clients,
        test_fraction=config.test_fraction,
        validation=_validation(config, source),
        prepare=choose("inputs", INPUTS, config.inputs)(source),
        seed=config.seed,
    )
