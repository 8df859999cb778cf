"""Sparsification: a client sends the largest entries of its update.

Aji, Heafield, 2017, arXiv 1704.05021; Stich, Cordonnier, Jaggi, 2018, "Sparsified SGD with Memory",
arXiv 1809.07599. It is biased: put it into ``error_feedback``.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedjax_geo import tree
from fedjax_geo.types import Array, PyTree


def _check(fraction: float) -> None:
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must be above 0 and at most 1, got {fraction}")


def _entries(fraction: float, size: int) -> int:
    return min(size, max(1, math.ceil(round(fraction * size, 9))))  # .07 * 100 is 7.000000000000001


def top_k(fraction: float) -> optax.GradientTransformationExtraArgs:
    """Of every tensor of an update, the ``ceil(fraction * size)`` entries of largest magnitude, zero elsewhere.

    Stacked updates ``[m, ...]`` to the same. Of equal entries the first is kept. Integer leaves pass unchanged.

    Args:
        fraction: of the entries of each tensor, at least one.

    Raises:
        ValueError: for a fraction that is not above 0 and at most 1.

    >>> link = top_k(0.5)
    >>> kept, _ = link.update(jnp.array([[1.0, -3.0, 2.0, 0.0]]), link.init(jnp.zeros(4)))
    >>> kept.tolist()
    [[0.0, -3.0, 2.0, 0.0]]
    """
    _check(fraction)

    def init(params: PyTree) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    def keep(leaf: Array) -> Array:
        if not tree.is_float(leaf) or not leaf.size:
            return leaf
        rows = leaf.reshape(leaf.shape[0], -1)
        _, places = jax.lax.top_k(jnp.abs(rows), _entries(fraction, rows.shape[1]))
        kept = jax.vmap(lambda row, at: jnp.zeros_like(row).at[at].set(row[at]))(rows, places)
        return kept.reshape(leaf.shape)

    def update(
        updates: PyTree, state: optax.EmptyState, params: PyTree = None, **info: Any
    ) -> tuple[PyTree, optax.EmptyState]:
        del params, info
        return jax.tree.map(keep, updates), state

    return optax.GradientTransformationExtraArgs(init, update)


def top_k_bytes(params: PyTree, fraction: float) -> int:
    """What ``top_k`` lets one client send in a round: for each entry kept, its value and an int32 index.

    ``sum over tensors of k * (bytes of a value + 4)``; integer leaves go as they are.

    >>> top_k_bytes({"w": jnp.zeros((10, 10)), "b": jnp.zeros(10)}, 0.05)
    48
    """
    _check(fraction)
    return sum(
        _entries(fraction, leaf.size) * (leaf.dtype.itemsize + 4) if tree.is_float(leaf) else leaf.nbytes
        for leaf in jax.tree.leaves(params)
        if leaf.size
    )
