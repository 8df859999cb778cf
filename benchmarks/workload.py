"""What is trained: the same clients of the same data by the same model, for every row of a table."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedjax_geo import data, models
from fedjax_geo.types import FederatedData, Model, Split

BATCH_SIZE = 20
LEARNING_RATE = 0.05


class Workload(NamedTuple):
    """A model and the clients of one round."""

    name: str
    model: Callable[[int], Model]
    madds: float  # multiply-adds of one example, forward
    clients: int  # in the round
    colour: bool  # 32 x 32 x 3 instead of 28 x 28 x 1


WORKLOADS = {
    w.name: w
    for w in (
        Workload("mlp", models.mlp, 0.199e6, 100, False),
        Workload("cnn", models.cnn, 8.3e6, 100, False),
        Workload("resnet20", models.resnet, 40.8e6, 100, True),
        Workload("resnet110", functools.partial(models.resnet, depth=110), 253e6, 10, True),
    )
}


@functools.cache
def fashion_mnist(colour: bool = False) -> data.Source:
    """Fashion-MNIST from this machine; padded to 32 x 32 with its channel repeated if in colour.

    Raises:
        DatasetNotFound: if its files are in none of the usual places.
    """
    source = data.load("fashion_mnist")
    return data.as_rgb(data.padded(source, 32)) if colour else source


def population(workload: Workload, num_clients: int = 1000) -> FederatedData:
    """Fashion-MNIST in the CRAFT authors' unbalanced Dirichlet(0.1), seed 77, no validation set."""
    partition = functools.partial(data.craft_dirichlet, alpha=0.1)
    return data.federate(fashion_mnist(workload.colour), partition, num_clients=num_clients, seed=77)


def one_round(workload: Workload) -> FederatedData:
    """The clients that train in every round of the benchmark, drawn from a population of 1000."""
    everybody = population(workload)
    chosen = np.sort(np.random.default_rng(0).choice(everybody.num_clients, workload.clients, replace=False))

    def rows(split: Split) -> Split:
        sizes = np.asarray(split.sizes)[chosen]
        return Split(np.asarray(split.indices)[chosen, : max(sizes.max(), 1)], sizes)  # type: ignore[arg-type]

    return FederatedData(
        examples=everybody.examples,
        train=rows(everybody.train),
        test=rows(everybody.test),
        validation=None,
        num_classes=everybody.num_classes,
        prepare=everybody.prepare,
        client_names=tuple(everybody.client_names[i] for i in chosen),
        provenance=f"{everybody.provenance}; {workload.clients} clients of them, drawn with seed 0",
    )
