"""Stochastic uniform quantisation: a client sends a few bits for each entry of its update.

Suresh, Yu, Kumar, McMahan, 2017, "Distributed Mean Estimation with Limited Communication", arXiv 1611.00429,
section 2.2: levels between the smallest and the largest entry, rounded at random so that the mean is right.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedjax_geo import _validate, tree
from fedjax_geo.transforms import _rows
from fedjax_geo.types import Array, Key, PyTree


def _check(bits: int) -> int:
    if _validate.at_least("bits", bits, 1) > 16:
        raise ValueError(f"bits must be at most 16, got {bits}")
    return int(bits)


def _rounded(values: Array, steps: int, key: Key) -> Array:
    """One tensor of one client, on ``steps + 1`` even levels from its smallest to its largest entry."""
    wide = tree.wide(values)
    low, high = jnp.min(wide), jnp.max(wide)
    width = (high - low) / steps
    place = (wide - low) / jnp.where(width > 0, width, 1)
    level = jnp.floor(place + jax.random.uniform(key, wide.shape, wide.dtype))
    exact = jnp.where(level >= steps, high, low + level * width)  # the ends without rounding
    return jnp.where(width > 0, exact, wide).astype(values.dtype)


def quantize(bits: int) -> optax.GradientTransformationExtraArgs:
    """Every tensor of every update rounded at random to ``2^bits`` even levels between its extremes.

    Stacked updates ``[m, ...]`` to the same. Without bias, with an error below one step,
    ``(max - min) / (2^bits - 1)``; a constant tensor stays as it is. Integer leaves pass unchanged. A client's
    randomness follows its id, not its place in the cohort.

    Args:
        bits: for each entry, 1 to 16.

    Raises:
        ValueError: for bits out of range.

    >>> link, params = quantize(1), jnp.zeros(3)
    >>> updates, info = jnp.array([[3.0, 3.0, 3.0]]), {"key": jax.random.key(0), "client_ids": jnp.array([7])}
    >>> link.update(updates, link.init(params), **info)[0].tolist()
    [[3.0, 3.0, 3.0]]
    """
    steps = 2 ** _check(bits) - 1

    def init(params: PyTree) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    def update(
        updates: PyTree,
        state: optax.EmptyState,
        params: PyTree = None,
        *,
        client_ids: Array,
        key: Key,
        **info: Any,
    ) -> tuple[PyTree, optax.EmptyState]:
        del params, info

        def of_leaf(leaf: Array, key: Key) -> Array:
            if not tree.is_float(leaf) or not leaf.size:
                return leaf
            keys = jax.vmap(jax.random.fold_in, (None, 0))(key, client_ids)
            return jax.vmap(lambda values, own: _rounded(values, steps, own))(leaf, keys)

        return jax.tree.map(of_leaf, updates, _rows.leaf_keys(key, "quantize", updates)), state

    return optax.GradientTransformationExtraArgs(init, update)


def quantize_bytes(params: PyTree, bits: int) -> int:
    """What ``quantize`` lets one client send in a round: for each tensor its levels and its two extremes.

    ``sum over tensors of ceil(bits * size / 8) + 2 * bytes of a value``; integer leaves go as they are.

    >>> quantize_bytes({"w": jnp.zeros((10, 10)), "b": jnp.zeros(10)}, 3)
    58
    """
    _check(bits)
    return sum(
        -(-bits * leaf.size // 8) + 2 * leaf.dtype.itemsize if tree.is_float(leaf) else leaf.nbytes
        for leaf in jax.tree.leaves(params)
        if leaf.size
    )
