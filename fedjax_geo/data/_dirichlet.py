"""Label skew by a Dirichlet draw that always ends.

Yurochkin et al., 2019, arXiv 1905.12022, draw for every class how it is shared among the clients (Hsu, Qi and
Brown, 2019, arXiv 1909.06335, draw for every client). The usual code redraws until the smallest client is
large enough, which need not happen. Here one draw is made and then repaired.
"""

import numpy as np

from fedjax_geo.data._parts import check_alpha, check_clients, cut_points, indices_by_class, top_up
from fedjax_geo.data._source import IntArray


def dirichlet(
    labels: IntArray, num_clients: int, alpha: float, *, seed: int, min_examples: int = 1
) -> list[IntArray]:
    """Share out every class in proportions drawn from Dirichlet(alpha).

    Clients left with fewer than ``min_examples`` are filled up at random from the largest ones.

    Args:
        labels: [N].
        num_clients: n.
        alpha: concentration; small is skewed, large is alike.
        seed: of everything random here.
        min_examples: every client gets at least so many.

    Returns:
        Positions of each client's examples, n arrays.

    Raises:
        ValueError: alpha is not positive and finite, or there are too few examples.

    >>> labels = np.repeat(np.arange(2), 50)
    >>> [np.bincount(labels[part], minlength=2).tolist() for part in dirichlet(labels, 3, 1.0, seed=0)]
    [[19, 1], [30, 20], [1, 29]]
    """
    check_alpha(alpha)
    check_clients(len(labels), num_clients, min_examples)
    rng = np.random.default_rng(seed)
    dealt: list[list[IntArray]] = []  # [class][client]
    for members in indices_by_class(labels):
        cuts = cut_points(rng.dirichlet(np.full(num_clients, alpha)), len(members))
        dealt.append(np.split(rng.permutation(members), cuts))
    parts = [rng.permutation(np.concatenate(pieces)) for pieces in zip(*dealt, strict=True)]
    return top_up(parts, min_examples)
