"""What a federation looks like, in a few numbers."""

from dataclasses import dataclass

import numpy as np

from fedjax_geo.data._source import IntArray
from fedjax_geo.types import FederatedData, Split


def _counts(data: FederatedData, split: Split) -> IntArray:
    indices, sizes = np.asarray(split.indices), np.asarray(split.sizes)
    client, slot = np.nonzero(np.arange(indices.shape[1]) < sizes[:, None])
    counts = np.zeros((data.num_clients, data.num_classes), np.int64)
    np.add.at(counts, (client, np.asarray(data.examples.y)[indices[client, slot]]), 1)
    return counts


def label_counts(data: FederatedData) -> IntArray:
    """Examples of each class that each client holds, for training and testing together.

    Returns:
        int64 [n, num_classes].

    >>> from fedjax_geo.data import load_federated
    >>> label_counts(load_federated("digits_forms"))[0].tolist()
    [13, 13, 13, 13, 13, 13, 13, 13, 13, 13]
    """
    return _counts(data, data.train) + _counts(data, data.test)


@dataclass(frozen=True)
class PartitionSummary:
    """Sizes and label skew; a client's size counts its training and test examples."""

    num_clients: int
    num_classes: int
    train: int
    test: int
    validation: int
    smallest: int
    median: float
    largest: int
    std: float  # of the sizes, population
    classes_per_client: float  # mean over the clients that have examples
    top_class_share: float  # of a client's commonest class, mean over the clients that have examples
    clients_without_test: int

    def __str__(self) -> str:
        """A few lines for a person."""
        return "\n".join(
            (
                f"{self.num_clients} clients, {self.num_classes} classes",
                f"examples    {self.train:,} train, {self.test:,} test, {self.validation:,} validation",
                f"client size {self.smallest}/{self.median:g}/{self.largest} min/median/max, std {self.std:.1f}",
                f"label skew  {self.classes_per_client:.2f} classes per client, "
                f"top class {self.top_class_share:.1%}",
                f"no test set {self.clients_without_test} clients",
            )
        )


def summarize(data: FederatedData) -> PartitionSummary:
    """Describe how the examples lie among the clients.

    >>> from fedjax_geo.data import load_federated
    >>> print(summarize(load_federated("digits_forms")))
    14 clients, 10 classes
    examples    1,440 train, 357 test, 0 validation
    client size 122/130/130 min/median/max, std 2.7
    label skew  10.00 classes per client, top class 10.2%
    no test set 0 clients
    """
    counts = label_counts(data)
    sizes = counts.sum(1)
    held = counts[sizes > 0]
    test_sizes = np.asarray(data.test.sizes)
    return PartitionSummary(
        num_clients=data.num_clients,
        num_classes=data.num_classes,
        train=int(np.sum(data.train.sizes)),
        test=int(test_sizes.sum()),
        validation=0 if data.validation is None else len(data.validation.y),
        smallest=int(sizes.min()),
        median=float(np.median(sizes)),
        largest=int(sizes.max()),
        std=float(sizes.std()),
        classes_per_client=float((held > 0).sum(1).mean()) if len(held) else 0.0,
        top_class_share=float((held.max(1) / held.sum(1)).mean()) if len(held) else 0.0,
        clients_without_test=int((test_sizes == 0).sum()),
    )
