"""ConFIG: the direction that makes the same angle with every update.

Liu, Chu, Thuerey, 2024, "ConFIG: Towards Conflict-free Training of Physics Informed Neural Networks",
arXiv 2408.11104, equations 2-3. With unit updates as rows of U,

    u = normalise(pinv(U) 1),   g = (sum_i g_i . u) u.

``pinv(U) 1`` is CRAFT's direction without a reference and with equal targets, so that solver is used; what differs
is the length, which is a sum over the clients and grows with the cohort.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedjax_geo import layers as layer_groups
from fedjax_geo import tree
from fedjax_geo.aggregators._cohort import cohort
from fedjax_geo.aggregators._constraints import System, directions, grouped_systems, ungroup
from fedjax_geo.aggregators._solvers import Solver, ridge
from fedjax_geo.types import Aggregator, Array, PyTree


def config(*, layers: layer_groups.Grouping = layer_groups.model, solver: Solver | None = None) -> Aggregator:
    """The ConFIG aggregator.

    A client whose update is zero (in a layer group) or not finite is left out. Where the updates cancel the
    direction is zero.

    Args:
        layers: layer groups, each treated as a model of its own; the authors take the whole model.
        solver: of the Gram systems, default that of ``craft``.

    Returns:
        An optax link that reads ``weights`` (only whether above zero).
    """
    solver = ridge() if solver is None else solver

    def init(params: PyTree) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    def update(
        updates: PyTree, state: optax.EmptyState, params: PyTree = None, *, weights: Any, **info: Any
    ) -> tuple[PyTree, optax.EmptyState]:
        del params, info
        clients = cohort(updates, weights)
        none = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), updates)
        labels = layers(none)
        systems = grouped_systems(labels, updates, none, clients.shares, raw_single=False, counted=clients.usable)
        axes = directions(systems, solver)
        return ungroup(labels, updates, {name: _stretched(systems[name], axes[name]) for name in axes}), state

    return Aggregator(init, update)


def _stretched(system: System, axis: list[Array]) -> list[Array]:
    """``(sum_i g_i . u) u`` for u along the axis."""
    square = tree.total([jnp.sum(jnp.square(a)) for a in axis])
    pulls = tree.total([tree.dot_rows(g, a) for g, a in zip(system.updates, axis, strict=True)])
    pull = jnp.sum(jnp.where(system.usable, pulls, 0))
    factor = jnp.where(square > 0, pull / jnp.where(square > 0, square, 1), 0)
    return [factor * a for a in axis]
