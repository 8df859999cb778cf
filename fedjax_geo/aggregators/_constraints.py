"""The constraints ``U g = rho`` of one layer group, as an ``m x m`` system and back."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_geo import tree
from fedjax_geo.types import Array, PyTree


class System(NamedTuple):
    """One layer group of a round; the lists run over its leaves.

    The rows of U are ``updates_i / norms_i`` of the usable clients, and zeros.
    """

    updates: list[Array]  # [m, ...], as they came: those of clients that are not usable may hold anything
    reference: list[Array]  # [...], ghat: together of length one, or zero
    norms: Array  # [m], 1 for clients that are not usable
    usable: Array  # [m] bool
    targets: Array  # rho, [m], zero for clients that are not usable
    alone: Array  # bool [], whether the one usable client's raw update is the answer

    @property
    def width(self) -> int:
        """Numbers in the group, d_q."""
        return sum(leaf.size for leaf in self.reference)


def _length(leaves: list[Array]) -> Array:
    return jnp.sqrt(tree.total([jnp.sum(jnp.square(leaf)) for leaf in leaves]))


def _system(updates: list[Array], reference: list[Array], weights: Array, raw_single: bool) -> System:
    squared_norms = tree.total([tree.squared_norm_rows(u) for u in updates])
    dtype = squared_norms.dtype
    # Below this a squared norm is rounding; the norm of an update that is not finite is not finite.
    resolvable = jnp.finfo(dtype).tiny / jnp.finfo(dtype).eps
    usable = jnp.isfinite(squared_norms) & (squared_norms > resolvable)
    count = jnp.sum(usable)
    weights = jnp.where(usable, weights.astype(dtype), 0)
    whole = jnp.sum(weights)
    equal = usable / jnp.maximum(count, 1).astype(dtype)
    length = _length(reference)
    return System(
        updates=updates,
        reference=[jnp.where(length > 0, r / jnp.where(length > 0, length, 1), 0) for r in reference],
        norms=jnp.where(usable, jnp.sqrt(jnp.where(usable, squared_norms, 1)), 1),
        usable=usable,
        targets=jnp.where(whole > 0, weights / jnp.where(whole > 0, whole, 1), equal),
        alone=(count == 1) & raw_single,
    )


def grouped_systems(
    labels: PyTree, updates: PyTree, reference: PyTree, weights: PyTree, raw_single: bool
) -> dict[str, System]:
    """The system of every layer group.

    Args:
        labels: tree of group names like params.
        updates: leaves ``[m, ...]``; integer leaves belong to no group.
        reference: like params, of any length; normalised here group by group.
        weights: a tree of ``[m]``; a group's weights are the mean over its leaves.
        raw_single: whether one usable client's raw update is the answer of its group.
    """
    members: dict[str, list[tuple[Array, Array, Array]]] = {}
    for label, *leaves in zip(*map(jax.tree.leaves, (labels, updates, reference, weights)), strict=True):
        if tree.is_float(leaves[0]):  # solved in float32 at least
            wide = jnp.promote_types(leaves[0].dtype, jnp.float32)
            members.setdefault(label, []).append(tuple(leaf.astype(wide) for leaf in leaves))
    systems = {}
    for label in sorted(members):
        u, r, w = (list(column) for column in zip(*members[label], strict=True))
        systems[label] = _system(u, r, tree.overall(w), raw_single)
    return systems


def _residual(system: System) -> Array:
    """``rho - U ghat`` -> ``[m]``."""
    pairs = zip(system.updates, system.reference, strict=True)
    products = tree.total([tree.dot_rows(u, r) for u, r in pairs]) / system.norms
    return jnp.where(system.usable, system.targets - products, 0)


def _cutoff(system: System) -> Array:
    """The authors' relative cut-off on singular values of U."""
    eps = jnp.finfo(system.norms.dtype).eps
    return jnp.maximum(jnp.sum(system.usable), system.width).astype(system.norms.dtype) * eps


def gram_system(system: System) -> tuple[Array, Array, Array]:
    """``(U U^T) y = rho - U ghat``: matrix ``[m, m]``, right side ``[m]`` and cut-off ``[]`` for a solver."""
    gram = tree.total([tree.gram_rows(u) for u in system.updates])
    both = system.usable[:, None] & system.usable[None, :]
    matrix = jnp.where(both, gram / (system.norms[:, None] * system.norms[None, :]), 0)
    return matrix, _residual(system), _cutoff(system)


def combine(system: System, y: Array) -> list[Array]:
    """``U^T y``, or the raw update of a client that is alone."""
    raw = system.usable.astype(y.dtype)
    coefficients = jnp.where(system.alone, raw, raw * y / system.norms)
    return [tree.combine_rows(coefficients, u) for u in system.updates]


def finish(system: System, correction: list[Array]) -> list[Array]:
    """``ghat + correction``; zero without a usable client, or where the updates cancel.

    Updates that cancel leave rounding, which must not become the next round's unit reference.
    """
    direction = [jnp.where(system.alone, c, r + c) for r, c in zip(system.reference, correction, strict=True)]
    noise = 10 * jnp.finfo(system.norms.dtype).eps * system.width**0.5
    keep = system.alone | (jnp.any(system.usable) & (_length(direction) > noise))
    return [jnp.where(keep, d, 0) for d in direction]


def ungroup(labels: PyTree, updates: PyTree, directions: dict[str, list[Array]]) -> PyTree:
    """Group-wise directions put back into a tree like params; integer leaves get zero."""
    remaining = {label: iter(leaves) for label, leaves in directions.items()}

    def leaf(label: str, update: Array) -> Array:
        if not tree.is_float(update):
            return jnp.zeros_like(update[0])
        return next(remaining[label]).astype(update.dtype)

    return jax.tree.map(leaf, labels, updates)
