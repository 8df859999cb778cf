"""Krum: the update, or the few, with the closest neighbours.

Blanchard, El Mhamdi, Guerraoui, Stainer, 2017, "Machine Learning with Adversaries: Byzantine Tolerant Gradient
Descent", arXiv 1703.02757. With f Byzantine clients of m, the score of client i is the sum of the squared
distances to its m - f - 2 nearest others; the lowest score wins.
"""

from typing import Any

import jax.numpy as jnp
import optax

from fedjax_geo import _validate, tree
from fedjax_geo.aggregators._cohort import Cohort, cohort, combine, gram
from fedjax_geo.types import Aggregator, Array, PyTree


def krum(num_byzantine: int, *, num_selected: int = 1) -> Aggregator:
    """The Krum aggregator; with more than one selected, Multi-Krum, their plain mean.

    Of the weights only whether they are above zero is read. Clients whose update is not finite are left out, and m
    is what remains. Equal scores are ordered by client id (the two closest updates tie where only one neighbour
    counts).

    Args:
        num_byzantine: f, how many clients of a cohort may be hostile.
        num_selected: how many updates are averaged.

    Returns:
        An optax link that reads ``weights`` and ``client_ids``.

    Raises:
        ValueError: for arguments out of range, and while traced, unless the cohort holds ``2 f + 3`` clients and
            ``f + num_selected``.
    """
    _validate.at_least("num_byzantine", num_byzantine, 0)
    _validate.at_least("num_selected", num_selected, 1)

    def init(params: PyTree) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    def update(
        updates: PyTree,
        state: optax.EmptyState,
        params: PyTree = None,
        *,
        weights: Any,
        client_ids: Array,
        **info: Any,
    ) -> tuple[PyTree, optax.EmptyState]:
        del params, info
        m = tree.num_clients(updates)
        needed = max(2 * num_byzantine + 3, num_byzantine + num_selected)
        if m < needed:
            raise ValueError(
                f"krum(num_byzantine={num_byzantine}, num_selected={num_selected}) needs a cohort of at least "
                f"{needed} clients, got {m}"
            )
        clients = cohort(updates, weights)
        neighbours = jnp.maximum(clients.number - num_byzantine - 2, 1)
        nearest = jnp.sort(_squared_distances(clients), axis=1)
        counted = jnp.arange(m) < jnp.minimum(neighbours, clients.number - 1)
        scores = jnp.sum(jnp.where(counted[None], nearest, 0), axis=1)
        order = jnp.lexsort((client_ids, scores, ~clients.usable))
        enough = clients.number >= needed  # too few to tell are left: no step
        selected = (jnp.argsort(order) < num_selected) & clients.usable & enough
        shares = selected.astype(scores.dtype) / jnp.maximum(jnp.sum(selected), 1).astype(scores.dtype)
        return tree.like_params(updates, combine(shares, clients.updates)), state

    return Aggregator(init, update)


def _squared_distances(clients: Cohort) -> Array:
    """``||g_i - g_j||^2`` -> ``[m, m]``, infinite to oneself and to clients that are not usable.

    Taken relative to the client of median norm, so that what all updates have in common does not cost precision.
    """
    by_norm = jnp.argsort(jnp.where(clients.usable, clients.norms, jnp.inf))
    middle = by_norm[jnp.maximum(clients.number - 1, 0) // 2]
    products = gram([x - x[middle][None] for x in clients.updates], clients.usable)
    squares = jnp.diagonal(products)
    distances = jnp.maximum(squares[:, None] + squares[None, :] - products - products.T, 0)
    pairs = clients.usable[:, None] & clients.usable[None, :] & ~jnp.eye(squares.shape[0], dtype=bool)
    return jnp.where(pairs & ~jnp.isnan(distances), distances, jnp.inf)
