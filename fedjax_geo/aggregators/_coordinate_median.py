"""Coordinate-wise median and trimmed mean of the updates.

Yin, Chen, Ramchandran, Bartlett, 2018, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates",
arXiv 1803.01498, definitions 1-2.
"""

import math
from typing import Any

import jax.numpy as jnp
import optax

from fedjax_geo import tree
from fedjax_geo.aggregators._cohort import Cohort, cohort
from fedjax_geo.types import Aggregator, Array, PyTree


def medians(clients: Cohort) -> list[Array]:
    """The median of each coordinate over the usable clients, leaf by leaf; zero without any."""
    low, high = (clients.number - 1) // 2, clients.number // 2
    ordered = _sorted(clients)
    return [jnp.where(clients.number > 0, x[low] / 2 + x[high] / 2, 0) for x in ordered]


def _sorted(clients: Cohort) -> list[Array]:
    """Each coordinate in ascending order, clients that are not usable at the end as infinity."""
    return [jnp.sort(jnp.where(tree.column(clients.usable, x), x, jnp.inf), axis=0) for x in clients.updates]


def _no_state(params: PyTree) -> optax.EmptyState:
    del params
    return optax.EmptyState()


def coordinate_median() -> Aggregator:
    """The median of each coordinate; of the two middle values of an even cohort, their mean.

    Every client counts the same, so that no one can buy a majority with a large data set: of the weights only
    whether they are above zero is read. Clients whose update is not finite are left out.
    """

    def update(
        updates: PyTree, state: optax.EmptyState, params: PyTree = None, *, weights: Any, **info: Any
    ) -> tuple[PyTree, optax.EmptyState]:
        del params, info
        return tree.like_params(updates, medians(cohort(updates, weights))), state

    return Aggregator(_no_state, update)


def trimmed_mean(fraction: float) -> Aggregator:
    """The mean of each coordinate without its ``floor(fraction * m)`` smallest and as many largest values.

    Every client counts the same; of the weights only whether they are above zero is read. Clients whose update is
    not finite are left out beforehand, and as many values are trimmed from the others: at least one remains.

    Args:
        fraction: trimmed at either end; above 0 and below 1/2.

    Raises:
        ValueError: for a fraction out of range, and while traced, if it trims nobody in a cohort of this size.
    """
    if not 0 < fraction < 0.5:
        raise ValueError(f"fraction must be above 0 and below 0.5, got {fraction}")

    def update(
        updates: PyTree, state: optax.EmptyState, params: PyTree = None, *, weights: Any, **info: Any
    ) -> tuple[PyTree, optax.EmptyState]:
        del params, info
        m = tree.num_clients(updates)
        trimmed = math.floor(round(fraction * m, 9))
        if trimmed == 0:
            raise ValueError(
                f"trimmed_mean(fraction={fraction}) trims nobody in a cohort of {m}: it would be the plain mean. "
                f"Use a fraction of at least {1 / m:.3g}"
            )
        clients = cohort(updates, weights)
        cut = jnp.minimum(trimmed, jnp.maximum(clients.number - 1, 0) // 2)
        place = jnp.arange(m)
        middle = (place >= cut) & (place < clients.number - cut)
        remaining = jnp.maximum(clients.number - 2 * cut, 1)
        direction = [
            jnp.sum(jnp.where(tree.column(middle, x), x, 0), axis=0) / remaining.astype(x.dtype)
            for x in _sorted(clients)
        ]
        return tree.like_params(updates, direction), state

    return Aggregator(_no_state, update)
