"""Robust federated aggregation: the geometric median of the updates.

Pillutla, Kakade, Harchaoui, 2022, "Robust Aggregation for Federated Learning", arXiv 1912.13445, algorithm 2, the
smoothed Weiszfeld algorithm for ``argmin_v sum_i w_i ||g_i - v||``:

    beta_i = w_i / max(nu, ||v - g_i||),   v <- sum_i beta_i g_i / sum_i beta_i.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedjax_geo import _validate, tree
from fedjax_geo.aggregators._cohort import cohort, combine
from fedjax_geo.aggregators._coordinate_median import medians
from fedjax_geo.types import Aggregator, Array, PyTree


def geometric_median(*, iterations: int = 10, nu: float = 1e-6) -> Aggregator:
    """The geometric median of the updates by the round's weights.

    Starts from the coordinate-wise median, from where one huge update cannot pull it; the authors start from the
    mean, and find 3 iterations enough. Clients whose update is not finite are left out.

    Args:
        iterations: passes over the updates; the error falls linearly.
        nu: smoothing, a length: distances below it count as nu.

    Returns:
        An optax link that reads ``weights``.

    Raises:
        ValueError: for less than one iteration or a nu that is not positive.
    """
    _validate.at_least("iterations", iterations, 1)
    _validate.positive("nu", nu)

    def init(params: PyTree) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    def update(
        updates: PyTree, state: optax.EmptyState, params: PyTree = None, *, weights: Any, **info: Any
    ) -> tuple[PyTree, optax.EmptyState]:
        del params, info
        clients = cohort(updates, weights)
        given = tree.normalize(tree.overall(weights).astype(clients.norms.dtype), clients.usable)

        def pull(_: Array, center: list[Array]) -> list[Array]:
            squares = [tree.squared_norm_rows(x - c[None]) for x, c in zip(clients.updates, center, strict=True)]
            closeness = given / jnp.maximum(nu, jnp.sqrt(tree.total(squares)))
            return combine(tree.normalize(closeness, clients.usable), clients.updates)

        return tree.like_params(updates, jax.lax.fori_loop(0, iterations, pull, medians(clients))), state

    return Aggregator(init, update)
