"""The Dirichlet partition of the CRAFT experiments, number for number.

CRAFT: Wang, Liu and Thuerey, 2026, arXiv 2605.21317. The random calls come in the order of the authors'
program, so that with their seed every client holds as many examples of every class as theirs. One generator
serves all steps:

1. Up to 200 draws: each class is shuffled and shared out by Dirichlet(alpha) proportions, until the smallest
   client has one example. Otherwise the draw with the largest smallest client is topped up.
2. Balanced only: equal sizes, by trimming and filling up.
3. Every client is topped up to 20 examples.
4. Each client's examples are shuffled; the first 80 % are for training.
"""

import numpy as np

from fedjax_geo.data._parts import (
    ClientParts,
    check_alpha,
    check_clients,
    cut_points,
    indices_by_class,
    top_up,
)
from fedjax_geo.data._source import IntArray

_ATTEMPTS = 200
_TRAIN = 0.8


def craft_dirichlet(
    labels: IntArray,
    num_clients: int,
    alpha: float,
    *,
    seed: int,
    balanced: bool = False,
    min_examples: int = 20,
) -> ClientParts:
    """Partition and cut the examples as the CRAFT authors did.

    Args:
        labels: [N], the official training examples followed by the test examples.
        num_clients: n.
        alpha: concentration; 0.1 in the paper.
        seed: 77 in the published configurations.
        balanced: give all clients equally many examples, up to one.
        min_examples: every client gets at least so many, training and test together.

    Returns:
        Positions of each client's training and test examples; together all N.

    Raises:
        ValueError: alpha is not positive and finite, or there are too few examples.

    >>> parts = craft_dirichlet(np.repeat(np.arange(10), 6000), 100, 0.1, seed=77)
    >>> [len(train) + len(test) for train, test in zip(parts.train[:5], parts.test[:5])]
    [1791, 400, 976, 312, 693]
    """
    check_alpha(alpha)
    check_clients(len(labels), num_clients, min_examples)
    rng = np.random.default_rng(seed)
    classes = indices_by_class(labels)
    fair_size = len(labels) // num_clients
    minimum = min(len(classes) if balanced else 1, fair_size)

    smallest, shares = -1, []
    for _ in range(_ATTEMPTS):
        sizes, drawn = _draw(rng, classes, num_clients, alpha, balanced)
        if sizes.min() > smallest:
            smallest, shares = sizes.min(), drawn
        if smallest >= minimum:
            break
    dealt = [np.split(members, cuts) for members, cuts in shares]  # [class][client]
    parts = [np.concatenate(pieces) for pieces in zip(*dealt, strict=True)]

    if smallest < minimum:
        parts = top_up([rng.permutation(part) for part in parts], minimum)
    if balanced:
        parts = _equalize(rng, parts, fair_size)
    parts = top_up([rng.permutation(part) for part in parts], min_examples)
    parts = [rng.permutation(part) for part in parts]
    cuts = [max(1, int(_TRAIN * len(part))) for part in parts]
    return ClientParts(
        train=[part[:cut] for part, cut in zip(parts, cuts, strict=True)],
        test=[part[cut:] for part, cut in zip(parts, cuts, strict=True)],
    )


def _draw(
    rng: np.random.Generator, classes: list[IntArray], num_clients: int, alpha: float, balanced: bool
) -> tuple[IntArray, list[tuple[IntArray, IntArray]]]:
    """One attempt: the clients' sizes [n] and, per class, its shuffled members and where to cut them."""
    fair_size = sum(map(len, classes)) / num_clients
    sizes = np.zeros(num_clients, np.int64)
    shares = []
    for members in classes:
        members = rng.permutation(members)
        proportions = rng.dirichlet(np.full(num_clients, alpha))
        if balanced:
            proportions = np.where(sizes < fair_size, proportions, 0)
            if not proportions.any():
                proportions = np.ones(num_clients)
            proportions /= proportions.sum()
        cuts = cut_points(proportions, len(members))
        sizes += np.diff(cuts, prepend=0, append=len(members))
        shares.append((members, cuts))
    return sizes, shares


def _equalize(rng: np.random.Generator, parts: list[IntArray], size: int) -> list[IntArray]:
    """Trim to ``size`` at random, hand the surplus to those below, and what is left one each."""
    surplus = [np.zeros(0, np.int64)]
    for client, part in enumerate(parts):
        if len(part) > size:
            shuffled = rng.permutation(part)
            parts[client] = shuffled[:size]
            surplus.append(shuffled[size:])
    missing = np.cumsum([size - len(part) for part in parts])
    *gifts, left = np.split(rng.permutation(np.concatenate(surplus)), missing)
    return [
        np.concatenate([part, gift, left[client : client + 1]])
        for client, (part, gift) in enumerate(zip(parts, gifts, strict=True))
    ]
