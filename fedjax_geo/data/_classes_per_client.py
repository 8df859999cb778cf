"""Label skew by number: every client knows exactly k classes.

Li, Diao, Chen and He, 2022, arXiv 2102.02079 (NIID-Bench), section IV: quantity-based label imbalance. They draw
k classes for each client and divide each class equally among those who drew it; a class that nobody drew is lost.
Here the number of holders of each class is settled first, so that pieces are about equally large, none is lost,
and a random deal always ends.
"""

import numpy as np
import numpy.typing as npt

from fedjax_geo.data._lift import lift
from fedjax_geo.data._parts import check_clients, indices_by_class
from fedjax_geo.data._source import IntArray


def classes_per_client(
    labels: IntArray, num_clients: int, classes: int = 2, *, seed: int, min_examples: int = 1
) -> list[IntArray]:
    """Give every client examples of exactly ``classes`` classes, chosen at random.

    Clients left with fewer than ``min_examples`` get more of their own classes from others who hold them.

    Args:
        labels: [N].
        num_clients: n.
        classes: k, of those that occur.
        seed: of everything random here.
        min_examples: every client gets at least so many.

    Returns:
        Positions of each client's examples, n arrays.

    Raises:
        ValueError: some class would be nobody's, there are too few examples of rare ones, or the clients who
            share classes with a small one have none to spare.

    >>> labels = np.repeat(np.arange(5), 30)
    >>> [sorted(set(labels[part].tolist())) for part in classes_per_client(labels, 4, 2, seed=0)]
    [[0, 4], [1, 2], [0, 1], [2, 3]]
    """
    check_clients(len(labels), num_clients, min_examples)
    members = indices_by_class(labels)
    counts = np.array([len(positions) for positions in members])
    rng = np.random.default_rng(seed)
    holds = _deal(rng, _holders(counts, num_clients, classes), num_clients, classes)
    table = _cut(holds, counts)
    lift(table, min_examples)
    dealt = [
        np.split(rng.permutation(positions), np.cumsum(column)[:-1])
        for positions, column in zip(members, table.T, strict=True)
    ]
    return [rng.permutation(np.concatenate(pieces)) for pieces in zip(*dealt, strict=True)]


def _holders(counts: IntArray, num_clients: int, classes: int) -> IntArray:
    """How many clients hold each class, [C], n k in all: again and again one more where the pieces are largest."""
    limits = np.minimum(counts, num_clients)
    slots = num_clients * classes
    if not 1 <= classes <= len(counts):
        raise ValueError(f"classes must be between 1 and the {len(counts)} that occur, got {classes}")
    if slots < len(counts):
        raise ValueError(
            f"classes={classes} for each of {num_clients} clients leave some of the {len(counts)} classes to "
            f"nobody; use at least {-(-len(counts) // num_clients)}"
        )
    if slots > limits.sum():
        raise ValueError(
            f"classes={classes} is too much for {num_clients} clients: rare classes have too few examples to go "
            f"round; use at most {limits.sum() // num_clients}"
        )
    holders = np.ones_like(counts)
    for _ in range(slots - len(counts)):
        holders[np.where(holders < limits, counts / holders, 0).argmax()] += 1
    return holders


def _deal(rng: np.random.Generator, holders: IntArray, num_clients: int, classes: int) -> npt.NDArray[np.bool_]:
    """Who holds what, [n, C]: k classes in every row, ``holders`` clients in the columns.

    A class with as many places left as there are clients left must be taken; the others are drawn in proportion
    to their places. So no class is ever left with more places than clients, and the last client fits.
    """
    left = holders.copy()
    holds = np.zeros((num_clients, len(holders)), bool)
    for remaining, client in zip(range(num_clients, 0, -1), rng.permutation(num_clients), strict=True):
        clock = np.full(len(left), np.inf)  # the first k to ring
        np.divide(rng.exponential(size=len(left)), left, out=clock, where=left > 0)
        clock[left == remaining] = 0
        chosen = np.argsort(clock)[:classes]
        holds[client, chosen] = True
        left[chosen] -= 1
    return holds


def _cut(holds: npt.NDArray[np.bool_], counts: IntArray) -> IntArray:
    """Examples of each class that each client gets, [n, C]: equally many, what is left over to the smallest."""
    table = np.zeros(holds.shape, np.int64)
    for label, count in enumerate(counts):
        who = np.flatnonzero(holds[:, label])
        base, extra = divmod(int(count), len(who))
        by_size = who[np.argsort(table[who].sum(1), kind="stable")]
        table[who, label] = base
        table[by_size[:extra], label] += 1
    return table
