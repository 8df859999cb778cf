"""Clients that differ in how much they hold, not in what.

Li, Diao, Chen and He, 2022, arXiv 2102.02079 (NIID-Bench), section IV: quantity skew.
"""

import numpy as np

from fedjax_geo.data._parts import check_alpha, check_clients, cut_points, shuffled, top_up
from fedjax_geo.data._source import IntArray


def quantity_skew(
    labels: IntArray, num_clients: int, alpha: float, *, seed: int, min_examples: int = 1
) -> list[IntArray]:
    """Deal the examples at random, sizes in proportions drawn from Dirichlet(alpha).

    Clients left with fewer than ``min_examples`` are filled up from the largest ones.

    Args:
        labels: [N]; how many of each there are decides, with the seed, which labels a client gets.
        num_clients: n.
        alpha: concentration; small is skewed, large is alike.
        seed: of everything random here.
        min_examples: every client gets at least so many.

    Returns:
        Positions of each client's examples, n arrays.

    Raises:
        ValueError: alpha is not positive and finite, or there are too few examples.

    >>> [len(part) for part in quantity_skew(np.zeros(100, int), 4, 0.5, seed=0)]
    [24, 1, 53, 22]
    """
    check_alpha(alpha)
    check_clients(len(labels), num_clients, min_examples)
    rng = np.random.default_rng(seed)
    cuts = cut_points(rng.dirichlet(np.full(num_clients, alpha)), len(labels))
    return top_up(np.split(shuffled(labels, rng), cuts), min_examples)
