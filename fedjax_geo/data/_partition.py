"""Partitions that need no distribution: at random, by shards, by whose example it is.

Every partitioner returns one array of example positions per client; together they hold each position once.
"""

import numpy as np

from fedjax_geo.data._parts import check_clients, indices_by_class, shuffled
from fedjax_geo.data._source import IntArray


def iid(labels: IntArray, num_clients: int, *, seed: int) -> list[IntArray]:
    """Deal the examples at random, sizes equal up to one.

    Args:
        labels: [N]; how many of each there are decides, with the seed, which labels a client gets.
        num_clients: n.
        seed: of the shuffle.

    Returns:
        Positions of each client's examples, n arrays.

    Raises:
        ValueError: fewer than one client, or more clients than examples.

    >>> [len(part) for part in iid(np.zeros(7, int), 3, seed=0)]
    [3, 2, 2]
    """
    check_clients(len(labels), num_clients)
    return np.array_split(shuffled(labels, np.random.default_rng(seed)), num_clients)


def shards(labels: IntArray, num_clients: int, shards_per_client: int = 2, *, seed: int) -> list[IntArray]:
    """Sort by label, cut into equal shards, give every client a few at random: few classes per client.

    McMahan et al., 2017, arXiv 1602.05629, section 3. Where the examples do not divide evenly, some shards
    hold one more instead of dropping the rest.

    Args:
        labels: [N].
        num_clients: n.
        shards_per_client: two in the paper.
        seed: of the dealing, and of the order within a class.

    Returns:
        Positions of each client's examples, n arrays.

    Raises:
        ValueError: a count below one, or more shards than examples.

    >>> labels = np.repeat(np.arange(4), 5)
    >>> [sorted(set(labels[part].tolist())) for part in shards(labels, 4, 1, seed=0)]
    [[3], [2], [0], [1]]
    """
    if shards_per_client < 1:
        raise ValueError(f"shards_per_client must be at least 1, got {shards_per_client}")
    check_clients(len(labels), num_clients, shards_per_client)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    pieces = np.array_split(order, num_clients * shards_per_client)
    hands = rng.permutation(len(pieces)).reshape(num_clients, shards_per_client)
    return [np.concatenate([pieces[piece] for piece in hand]) for hand in hands]


def by_group(group_ids: IntArray) -> list[IntArray]:
    """One client per distinct id, in ascending order: natural clients.

    Args:
        group_ids: [N], whose example it is.

    Returns:
        Positions of each client's examples, in the order of the rows.

    Raises:
        ValueError: no examples.

    >>> [part.tolist() for part in by_group(np.array([7, 2, 7]))]
    [[1], [0, 2]]
    """
    if len(group_ids) == 0:
        raise ValueError("group_ids is empty; there must be at least one example")
    return indices_by_class(group_ids)
