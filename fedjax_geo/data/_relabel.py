"""One data set under the class names of another, so that it can stand in for it at the server."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedjax_geo.data._source import Source

# FedVG (Devkota et al., 2026, arXiv 2602.21399) validates on these instead of on the clients' own data set. Their
# CIFAR-100 has no trucks, for want of an underscore in "pickup truck", and DermaMNIST's classes are numbered
# otherwise than ISIC's; matching by name repairs both.
STL10_AS_CIFAR10: Mapping[str, str] = {"car": "automobile"}
CIFAR100_AS_CIFAR10: Mapping[str, str] = {
    "bus": "automobile",
    "motorcycle": "automobile",
    "leopard": "cat",
    "lion": "cat",
    "tiger": "cat",
    "wolf": "dog",
    "fox": "dog",
    "pickup_truck": "truck",
}
ISIC2019_AS_DERMAMNIST: Mapping[str, str] = {
    "AK": "actinic keratoses and intraepithelial carcinoma",
    "BCC": "basal cell carcinoma",
    "BKL": "benign keratosis-like lesions",
    "DF": "dermatofibroma",
    "MEL": "melanoma",
    "NV": "melanocytic nevi",
    "VASC": "vascular lesions",
}


def relabelled(source: Source, class_names: Sequence[str], renamed: Mapping[str, str] | None = None) -> Source:
    """The examples whose class exists, by name, among the given classes.

    Args:
        source: the data set.
        class_names: of the result, in the order of its labels; some may have no examples.
        renamed: what the source's classes are called there; the others keep their name.

    Returns:
        A source of fewer examples, in the order that they had.

    Raises:
        ValueError: ``renamed`` has a name that is unknown on its side, or no class is left.

    >>> from fedjax_geo.data import load
    >>> few = relabelled(load("digits_forms"), ("eight", "1"), {"8": "eight"})
    >>> few.num_classes, np.bincount(few.labels).tolist()
    (2, [174, 182])
    """
    renamed = renamed or {}
    unknown = [old for old in renamed if old not in source.class_names]
    unknown += [new for new in renamed.values() if new not in class_names]
    if unknown:
        raise ValueError(
            f"renamed has unknown classes {', '.join(unknown)}; it must map some of "
            f"{', '.join(source.class_names)} to some of {', '.join(class_names)}"
        )
    number = {name: label for label, name in enumerate(class_names)}
    new_label = np.array([number.get(renamed.get(name, name), -1) for name in source.class_names], np.int32)
    if (new_label < 0).all():
        raise ValueError(f"class_names share none with the data set's {', '.join(source.class_names)}")
    kept = np.flatnonzero(new_label[source.labels] >= 0)
    return replace(
        source.take(kept),
        labels=new_label[source.labels[kept]],
        class_names=tuple(class_names),
        provenance=f"{source.provenance}, {np.count_nonzero(new_label >= 0)} classes by name",
    )
