"""CIFAR-10 and CIFAR-100: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.

The binary version is preferred to the Python one where both are found, the files to their archive.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedjax_geo.data._archive import read_tar_gz
from fedjax_geo.data._cifar_forms import PIXELS, parse_binary, parse_names, parse_pickle, parse_pickled_names
from fedjax_geo.data._guard import check_labels, read_bytes, unique_names
from fedjax_geo.data._inputs import CIFAR10_SCALE, CIFAR100_SCALE
from fedjax_geo.data._places import find_form, put_into
from fedjax_geo.data._prepare import Scale
from fedjax_geo.data._source import Source

_HINT = "Get {} from https://www.cs.toronto.edu/~kriz/cifar.html and " + put_into("it, or the files in it,")
_NAMES_LIMIT = 1 << 16  # bytes of a file of names


@dataclass(frozen=True)
class _Cifar:
    """How one of the sets is stored."""

    name: str
    folders: tuple[str, str]  # of the binary and the Python version
    archives: tuple[str, str]
    examples: dict[str, int]  # file -> examples in it, the official test file last
    names: tuple[str, str]  # files with the names of classes
    label: str  # what the Python version calls the label
    label_byte: int  # where the binary version has it
    label_bytes: int  # before the pixels of a binary record
    num_classes: int
    prepare: Scale


CIFAR10 = _Cifar(
    name="cifar10",
    folders=("cifar-10-batches-bin", "cifar-10-batches-py"),
    archives=("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"),
    examples={**{f"data_batch_{i}": 10_000 for i in range(1, 6)}, "test_batch": 10_000},
    names=("batches.meta.txt", "batches.meta"),
    label="label",
    label_byte=0,
    label_bytes=1,
    num_classes=10,
    prepare=CIFAR10_SCALE,
)
CIFAR100 = {
    coarse: _Cifar(
        name="cifar100_coarse" if coarse else "cifar100",
        folders=("cifar-100-binary", "cifar-100-python"),
        archives=("cifar-100-binary.tar.gz", "cifar-100-python.tar.gz"),
        examples={"train": 50_000, "test": 10_000},
        names=("coarse_label_names.txt" if coarse else "fine_label_names.txt", "meta"),
        label="coarse_label" if coarse else "fine_label",
        label_byte=0 if coarse else 1,
        label_bytes=2,
        num_classes=20 if coarse else 100,
        prepare=CIFAR100_SCALE,
    )
    for coarse in (False, True)
}


def cifar10(data_dir: str | os.PathLike[str] | None = None) -> Source:
    """60,000 colour images of 32x32 pixels, 10 classes; official training and test part pooled.

    Args:
        data_dir: the only place to look for the files; None searches the usual places.

    Raises:
        DatasetNotFound: the files are in none of the places searched.
        DatasetCorrupt: a file is damaged or not the expected one.
    """
    return _read(CIFAR10, data_dir)


def cifar100(data_dir: str | os.PathLike[str] | None = None, *, coarse: bool = False) -> Source:
    """60,000 colour images of 32x32 pixels, 100 classes; official training and test part pooled.

    Args:
        data_dir: the only place to look for the files; None searches the usual places.
        coarse: label by the 20 groups of classes.

    Raises:
        DatasetNotFound: the files are in none of the places searched.
        DatasetCorrupt: a file is damaged or not the expected one.
    """
    return _read(CIFAR100[coarse], data_dir)


def _read(facts: _Cifar, data_dir: str | os.PathLike[str] | None) -> Source:
    files = {
        "binary": [*(f"{file}.bin" for file in facts.examples), facts.names[0]],
        "python": [*facts.examples, facts.names[1]],
    }
    set_name = facts.name.removesuffix("_coarse")
    form, matches = find_form(
        {
            "binary": files["binary"],
            "binary archive": facts.archives[:1],
            "python": files["python"],
            "python archive": facts.archives[1:],
        },
        (set_name, *facts.folders, *(f"{set_name}/{folder}" for folder in facts.folders)),
        data_dir=data_dir,
        name=facts.name,
        hint=_HINT.format(facts.archives[0]),
    )
    version = form.split()[0]
    counts = list(facts.examples.values())
    spare = 0 if version == "binary" else PIXELS + 256  # pickles may store bytes as text, and have file names
    limits = [count * (facts.label_bytes + PIXELS + spare) + (1 << 12) for count in counts] + [_NAMES_LIMIT]
    if form.endswith("archive"):
        place = matches[0][0]
        sizes = dict(zip(files[version], limits, strict=True))
        members = read_tar_gz(place, sizes, total=2 * sum(limits) + (1 << 20))
        contents = [(f"{place}: {file}", members[file]) for file in files[version]]
    else:
        paths = [match[0] for match in matches]
        place = paths[0].parent
        contents = [(str(path), read_bytes(path, limit)) for path, limit in zip(paths, limits, strict=True)]
    return _parse(facts, version, contents, place)


def _parse(facts: _Cifar, version: str, contents: list[tuple[str, bytes]], place: Path) -> Source:
    *examples, (names_file, names) = contents
    parts = [
        parse_binary(where, content, count, facts.label_bytes, facts.label_byte)
        if version == "binary"
        else parse_pickle(where, content, count, facts.label)
        for (where, content), count in zip(examples, facts.examples.values(), strict=True)
    ]
    class_names = (
        parse_names(names_file, names)
        if version == "binary"
        else parse_pickled_names(names_file, names, f"{facts.label}_names")
    )
    images = np.concatenate([pixels for pixels, _ in parts])
    labels = np.concatenate([values for _, values in parts])
    num_train = len(labels) - len(parts[-1][1])
    for where, part in ((place, labels[:num_train]), (examples[-1][0], labels[num_train:])):
        check_labels(where, part, facts.num_classes, len(part) // facts.num_classes)
    return Source(
        images=images,
        labels=labels.astype(np.int32),
        class_names=unique_names(names_file, class_names, facts.num_classes),
        prepare=facts.prepare,
        num_train=num_train,
        provenance=f"{facts.name}: {place} ({version} version)",
        licence="not stated by the authors",
    )
