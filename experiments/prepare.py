"""Data sets on this machine, written as tensorflow-datasets has them, and decoded once.

Reads the original files of any data set by its name, writes ``OUT/NAME/VERSION`` in the order of these files, and
reads it back. Both this library and tensorflow-datasets then find it there; the latter needs no TensorFlow for
array_record files. Nothing is downloaded. Without ``--out`` the files are only decoded into the cache.

    python -m experiments.prepare fashion_mnist --out prepared
"""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import tyro

from experiments import tfds_folder
from experiments.datasets import SOURCES
from experiments.tfds_folder import Form, Table
from fedjax_geo import data
from fedjax_geo._validate import choose
from fedjax_geo.data import Source
from fedjax_geo.data._cache import cache_root
from fedjax_geo.data._prepared import TFDS, read_prepared  # the same table that reads

# Of tensorflow-datasets 4.9.10, by which it finds a data set of its own by name.
VERSIONS = {
    "cifar10": "3.0.2",
    "cifar100": "3.0.2",
    "emnist": "3.1.0",
    "fashion_mnist": "3.0.1",
    "mnist": "3.0.1",
    "pneumonia_mnist": "1.0.0",
    "stl10": "1.0.0",
}


@dataclasses.dataclass(frozen=True)
class Config:
    """What to prepare.

    Attributes:
        names: data sets, by their names in ``fedjax_geo.data.SOURCES``.
        data_dir: folder of the original files, if not in one of the usual places.
        out: folder for data sets of tensorflow-datasets, such as its own ~/tensorflow_datasets.
        form: of the files; unless given array_record where that package is installed, else tfrecord.
    """

    names: tyro.conf.Positional[tuple[str, ...]]
    data_dir: Path | None = None
    out: Path | None = None
    form: Form | None = None


def load(name: str, data_dir: Path | None) -> Source:
    """A data set of the library or of the experiments."""
    return SOURCES[name](data_dir) if name in SOURCES else data.load(name, data_dir)


def table(name: str, source: Source, data_dir: Path | None) -> Table:
    """A data set as tensorflow-datasets has it, or, if it has not, in the same manner.

    Natural clients become a feature ``client_id``.
    """
    n = source.num_train
    parts = {"train": range(n), "test": range(n, len(source))}
    labels = {"label": source.labels}
    names: dict[str, tuple[str, ...] | int] = {"label": source.class_names}
    about = f"{source.provenance}; written by fedjax_geo, in this order"
    facts = TFDS.get(name)
    if facts is None:
        if source.client_ids is not None:
            labels["client_id"] = source.client_ids
            names["client_id"] = source.client_names
        parts = {part: positions for part, positions in parts.items() if positions}
        return Table(name, "1.0.0", about, source.licence, source.images, labels, _plain(names), parts)
    if "val" in facts.parts:
        m = len(data.medmnist(name, data_dir, splits=("train",)))
        parts = {"train": range(m), "val": range(m, n), "test": range(n, len(source))}
    if facts.builder == "cifar100":
        both = {"label": load("cifar100", data_dir), "coarse_label": load("cifar100_coarse", data_dir)}
        labels = {feature: one.labels for feature, one in both.items()}
        names = {feature: one.class_names for feature, one in both.items()}
    if facts.first_label:
        labels = {"label": source.labels + facts.first_label}
        names = {"label": source.num_classes + facts.first_label}
    return Table(
        facts.builder,
        VERSIONS[facts.builder.partition("/")[0]],
        about,
        source.licence,
        source.images.transpose(0, 2, 1, 3) if facts.transposed else source.images,
        labels,
        _plain(names),
        parts,
        ids=facts.builder.startswith("cifar"),
    )


def _plain(names: dict[str, tuple[str, ...] | int]) -> dict[str, tuple[str, ...] | int]:
    """Only how many there are, where the names could not be told apart as lines of a file."""

    def apart(listed: tuple[str, ...]) -> bool:
        return len({name.strip() for name in listed} - {""}) == len(listed) and "\n" not in "".join(listed)

    return {what: n if isinstance(n, int) or apart(n) else len(n) for what, n in names.items()}


def check(name: str, source: Source, root: Path) -> None:
    """Read back what was written, which also keeps it decoded in the cache.

    Raises:
        ValueError: it is not what was to be written.
    """
    found = read_prepared(name, root)
    if found is None or not (
        np.array_equal(found.images, source.images)
        and np.array_equal(found.labels, source.labels)
        and (found.num_train, found.class_names) == (source.num_train, source.class_names)
    ):
        raise ValueError(f"{name}: what was written to {root} does not read back as it was")


def size(folder: Path) -> str:
    """Bytes of a folder's files, in words."""
    return f"{sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / 1e6:.1f} MB"


def prepare(name: str, config: Config) -> None:
    """Prepare one data set and say what was done."""
    known = dict.fromkeys((*data.SOURCES, *SOURCES), "")
    choose("data set", known, name)
    before = set(cache_root().glob("*"))
    source = load(name, config.data_dir)
    print(f"{name}: {len(source):,} examples; {source.provenance}")
    if config.out is not None:
        root = config.out.expanduser()
        folder, written = tfds_folder.write(table(name, source, config.data_dir), root, config.form)
        if name in TFDS:
            check(name, source, root)
        done = "written" if written else "was there already, the same"
        print(f"  tensorflow-datasets: {folder} ({size(folder)}), {done}")
    for entry in sorted(set(cache_root().glob("*")) - before):
        print(f"  decoded: {entry} ({size(entry)})")


def main(config: Config) -> None:
    """Prepare all data sets asked for."""
    if not config.names:
        raise ValueError(f"name a data set: {', '.join((*data.SOURCES, *SOURCES))}")
    for name in config.names:
        prepare(name, config)


if __name__ == "__main__":
    try:
        main(tyro.cli(Config))
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"error: {error}")
