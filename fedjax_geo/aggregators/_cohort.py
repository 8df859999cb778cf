"""What the aggregators share: which clients of a round can be used, and products of their updates."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_geo import tree
from fedjax_geo.types import Array, PyTree


class Cohort(NamedTuple):
    """The stacked updates, and which of them can be used."""

    updates: list[Array]  # float leaves [m, ...], float32 or wider; clients that are not usable may hold anything
    usable: Array  # bool [m]: weight above zero, and an update whose squared norm is finite
    norms: Array  # [m], zero for clients that are not usable

    @property
    def rows(self) -> list[Array]:
        """The updates with zeros for clients that are not usable: a copy, which ``combine`` and ``gram`` spare."""
        return [jnp.where(tree.column(self.usable, leaf), leaf, 0) for leaf in self.updates]

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
    leaves = tree.float_leaves(updates)
    squared = tree.total([tree.squared_norm_rows(leaf) for leaf in leaves])
    usable = (tree.overall(weights) > 0) & jnp.isfinite(squared)
    if needed is not None:
        usable = usable & jnp.isfinite(needed)
    return Cohort(leaves, usable, jnp.sqrt(jnp.where(usable, squared, 0)))


def leaf_shares(weights: Any, updates: PyTree, counted: Array) -> list[Array]:
    """The weights of the clients that count, scaled to sum to one: ``[m]`` for each float leaf."""
    shares = jax.tree.leaves(tree.normalize(tree.spread(weights, updates), counted))
    return [share for share, leaf in zip(shares, jax.tree.leaves(updates), strict=True) if tree.is_float(leaf)]


def combine(coefficients: Array, rows: list[Array]) -> list[Array]:
    """``sum_i c_i x_i`` leaf by leaf; where a coefficient is zero the row may hold anything."""
    return tree.combine([coefficients.astype(leaf.dtype) for leaf in rows], rows)


def gram(rows: list[Array], usable: Array) -> Array:
    """``<x_i, x_j>`` -> ``[m, m]``, zero for rows that are not usable, which may hold anything."""
    products = tree.total([tree.gram_rows(leaf) for leaf in rows])
    return jnp.where(usable[:, None] & usable[None, :], products, 0)
