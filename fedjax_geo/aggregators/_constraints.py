"""The constraints ``U g = rho`` of one layer group, as an ``m x m`` system and back."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_geo import tree
from fedjax_geo.aggregators._each import each
from fedjax_geo.aggregators._solvers import Solver
from fedjax_geo.types import Array, PyTree

Targets = Callable[[Array, Array], Array]  # (shares [m], lengths [m]) of one group -> rho [m]


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


def _system(
    updates: list[Array],
    reference: list[Array],
    weights: Array,
    raw_single: bool,
    targets: Targets,
    counted: Array | None,
) -> System:
    squared_norms = tree.total([tree.squared_norm_rows(u) for u in updates])
    dtype = squared_norms.dtype
    # Below this a squared norm is rounding; the norm of an update that is not finite is not finite.
    resolvable = jnp.finfo(dtype).tiny / jnp.finfo(dtype).eps
    usable = jnp.isfinite(squared_norms) & (squared_norms > resolvable)
    usable = usable if counted is None else usable & counted
    norms = jnp.where(usable, jnp.sqrt(jnp.where(usable, squared_norms, 1)), 1)
    count = jnp.sum(usable)
    weights = jnp.where(usable, weights.astype(dtype), 0)
    whole = jnp.sum(weights)
    equal = usable / jnp.maximum(count, 1).astype(dtype)
    shares = jnp.where(whole > 0, weights / jnp.where(whole > 0, whole, 1), equal)
    length = _length(reference)
    return System(
        updates=updates,
        reference=[jnp.where(length > 0, r / jnp.where(length > 0, length, 1), 0) for r in reference],
        norms=norms,
        usable=usable,
        targets=jnp.where(usable, targets(shares, jnp.where(usable, norms, 0)).astype(dtype), 0),
        alone=(count == 1) & raw_single,
    )


def grouped_systems(
    labels: PyTree,
    updates: PyTree,
    reference: PyTree,
    weights: Any,
    *,
    raw_single: bool,
    targets: Targets = lambda shares, lengths: shares,
    counted: Array | None = None,
) -> dict[str, System]:
    """The system of every layer group.

    Args:
        labels: tree of group names like params.
        updates: leaves ``[m, ...]``; integer leaves belong to no group.
        reference: like params, of any length; normalised here group by group.
        weights: ``[m]`` or a tree of ``[m]``; a group's weights are the mean over its leaves.
        raw_single: whether one usable client's raw update is the answer of its group.
        targets: what is asked for, given the weights of the group, scaled to sum to one over the usable clients,
            and the lengths of the updates in it.
        counted: bool ``[m]``, who may be usable; default everybody.
    """
    spread = tree.spread(weights, updates)
    members: dict[str, list[tuple[Array, Array, Array]]] = {}
    for label, *leaves in zip(*map(jax.tree.leaves, (labels, updates, reference, spread)), strict=True):
        if tree.is_float(leaves[0]):  # solved in float32 at least
            wide = jnp.promote_types(leaves[0].dtype, jnp.float32)
            members.setdefault(label, []).append(tuple(leaf.astype(wide) for leaf in leaves))
    systems = {}
    for label in sorted(members):
        u, r, w = (list(column) for column in zip(*members[label], strict=True))
        systems[label] = _system(u, r, tree.overall(w), raw_single, targets, counted)
    return systems


def directions(systems: dict[str, System], solver: Solver) -> dict[str, list[Array]]:
    """``ghat + U^T y`` of every group, leaf by leaf; the systems of all groups are solved in one batch."""
    parts = zip(*map(_gram_system, systems.values()), strict=True)
    answers = each(solver, *map(jnp.stack, parts))
    corrections = _corrections(list(systems.values()), answers)
    return {
        label: _finish(system, correction)
        for (label, system), correction in zip(systems.items(), corrections, strict=True)
    }


def _residual(system: System) -> Array:
    """``rho - U ghat`` -> ``[m]``."""
    pairs = zip(system.updates, system.reference, strict=True)
    products = tree.total([tree.dot_rows(u, r) for u, r in pairs]) / system.norms
    return jnp.where(system.usable, system.targets - products, 0)


def _cutoff(system: System) -> Array:
    """The authors' relative cut-off on singular values of U."""
    eps = jnp.finfo(system.norms.dtype).eps
    return jnp.maximum(jnp.sum(system.usable), system.width).astype(system.norms.dtype) * eps


def _gram_system(system: System) -> tuple[Array, Array, Array]:
    """``(U U^T) y = rho - U ghat``: matrix ``[m, m]``, right side ``[m]`` and cut-off ``[]`` for a solver."""
    gram = tree.total([tree.gram_rows(u) for u in system.updates])
    both = system.usable[:, None] & system.usable[None, :]
    matrix = jnp.where(both, gram / (system.norms[:, None] * system.norms[None, :]), 0)
    return matrix, _residual(system), _cutoff(system)


def _corrections(systems: list[System], answers: Array) -> list[list[Array]]:
    """``U^T y`` of every group, or the raw update of a client that is alone."""
    coefficients = []
    for system, y in zip(systems, answers, strict=True):
        raw = system.usable.astype(y.dtype)
        own = jnp.where(system.alone, raw, raw * y / system.norms)
        coefficients += [own.astype(leaf.dtype) for leaf in system.updates]
    combined = iter(tree.combine(coefficients, [leaf for system in systems for leaf in system.updates]))
    return [[next(combined) for _ in system.updates] for system in systems]


def _finish(system: System, correction: list[Array]) -> list[Array]:
    """``ghat + correction``; zero without a usable client, or where the updates cancel.

    Updates that cancel leave rounding, which must not become the next round's unit reference.
    """
    direction = [jnp.where(system.alone, c, r + c) for r, c in zip(system.reference, correction, strict=True)]
    scale = jnp.maximum(jnp.sum(jnp.abs(system.targets)), _length(system.reference))
    noise = 10 * jnp.finfo(system.norms.dtype).eps * system.width**0.5 * scale
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
