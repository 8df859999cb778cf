"""What the aggregators share: which clients of a round can be used, and trees without their integer leaves."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_geo import tree
from fedjax_geo.types import Array, PyTree


class Cohort(NamedTuple):
    """The usable part of the stacked updates."""

    rows: list[Array]  # float leaves [m, ...], float32 or wider, zero for clients that are not usable
    usable: Array  # bool [m]: weight above zero, and an update whose squared norm is finite
    norms: Array  # [m], zero for clients that are not usable

    @property
    def number(self) -> Array:
        """Usable clients, int32 []."""
        return jnp.sum(self.usable, dtype=jnp.int32)

    @property
    def shares(self) -> Array:
        """The same weight for every usable client ``[m]``."""
        return equal_shares(self.usable, self.norms)

    @property
    def moving(self) -> Array:
        """Usable clients whose update has a length that can be divided by, bool ``[m]``."""
        return self.norms > smallest_norm(self.norms)


def equal_shares(usable: Array, like: Array) -> Array:
    """One over the number of usable clients for each of them, in the dtype of ``like`` -> ``[m]``."""
    return usable.astype(like.dtype) / jnp.maximum(jnp.sum(usable), 1).astype(like.dtype)


def smallest_norm(norms: Array) -> Array:
    """Below this a norm is rounding, because its square is."""
    limits = jnp.finfo(norms.dtype)
    return jnp.sqrt(limits.tiny / limits.eps).astype(norms.dtype)


def cohort(updates: PyTree, weights: Any, *, needed: Array | None = None) -> Cohort:
    """The usable clients of a round.

    Args:
        updates: leaves ``[m, ...]``.
        weights: ``[m]`` or a tree of ``[m]``; a client whose overall weight is not above zero does not take part.
        needed: ``[m]``, something else that must be finite, such as the losses.
    """
    tree.num_clients(updates)
    leaves = float_leaves(updates)
    squared = tree.total([tree.squared_norm_rows(leaf) for leaf in leaves])
    usable = (tree.overall(weights) > 0) & jnp.isfinite(squared)
    if needed is not None:
        usable = usable & jnp.isfinite(needed)
    rows = [jnp.where(tree.column(usable, leaf), leaf, 0) for leaf in leaves]
    return Cohort(rows, usable, jnp.sqrt(jnp.where(usable, squared, 0)))


def float_leaves(values: PyTree) -> list[Array]:
    """The floating-point leaves, in float32 or wider."""
    return [tree.wide(leaf) for leaf in jax.tree.leaves(values) if tree.is_float(leaf)]


def combine(coefficients: Array, rows: list[Array]) -> list[Array]:
    """``sum_i c_i x_i`` leaf by leaf."""
    return [tree.combine_rows(coefficients.astype(leaf.dtype), leaf) for leaf in rows]


def gram(rows: list[Array]) -> Array:
    """``<x_i, x_j>`` -> ``[m, m]``."""
    return tree.total([tree.gram_rows(leaf) for leaf in rows])


def like_params(updates: PyTree, direction: list[Array]) -> PyTree:
    """Float leaves ``[...]`` put back into a tree like params; integer leaves get zero."""
    remaining = iter(direction)

    def leaf(update: Array) -> Array:
        if not tree.is_float(update):
            return jnp.zeros_like(update[0])
        return next(remaining).astype(update.dtype)

    return jax.tree.map(leaf, updates)
