"""CRAFT: aggregation as a constrained least-squares problem anchored at a reference.

CRAFT, 2026, arXiv 2605.21317. For each layer group, with unit client updates as rows of U, targets rho and a
reference ghat of length one (or zero):

    minimise ||g - ghat||^2 / 2  subject to  U g = rho,     g = ghat + pinv(U) (rho - U ghat).

So every client gets its share of descent, ``u_i . g = rho_i``, and what no client of this round can see of the
reference is kept. The m x m Gram systems ``(U U^T) y = rho - U ghat`` of all groups are solved in one batch, and
``g = ghat + U^T y``. Where clients contradict one another, or outnumber the width of the group, the constraints
hold in the least-squares sense.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from fedjax_geo import layers as layer_groups
from fedjax_geo import tree
from fedjax_geo.aggregators._constraints import combine, finish, gram_system, grouped_systems, ungroup
from fedjax_geo.aggregators._solvers import Solver, ridge
from fedjax_geo.types import Aggregator, PyTree

Reference = Callable[..., PyTree]  # (previous direction, updates, **info) -> tree like params, any length


class CraftState(NamedTuple):
    """The last direction, before any server learning rate."""

    previous: PyTree


def previous_direction(previous: PyTree, updates: PyTree, **info: Any) -> PyTree:
    """The paper's reference: the last direction (zero in the first round)."""
    del updates, info
    return previous


def no_reference(previous: PyTree, updates: PyTree, **info: Any) -> PyTree:
    """The minimum-norm direction that gives every client its share."""
    del updates, info
    return tree.zeros_like(previous)


def craft(
    *,
    layers: layer_groups.Grouping = layer_groups.module,
    solver: Solver | None = None,
    reference: Reference = previous_direction,
    raw_single: bool = True,
) -> Aggregator:
    """The CRAFT aggregator: stacked updates ``[m, ...]`` to one direction ``[...]``.

    A client whose update is zero or not finite in a layer group is left out of that group, and the weights of
    the others are renormalised there (equal where they sum to zero).

    Args:
        layers: layer groups, each solved on its own; the authors' are ``layers.module``.
        solver: of the Gram systems; default ``ridge()``. ``spectral()`` truncates as the authors' code.
        reference: what the direction stays close to; normalised per group here.
        raw_single: where one client alone is usable, return its raw update, as the authors' code does. That
            direction has the length of a client update, not of order one. False applies the formula.

    Returns:
        An optax link that reads ``weights``; its state holds the last direction.
    """
    solver = ridge() if solver is None else solver

    def init(params: PyTree) -> CraftState:
        return CraftState(tree.zeros_like(params))

    def update(
        updates: PyTree, state: CraftState, params: PyTree = None, *, weights: Any, **info: Any
    ) -> tuple[PyTree, CraftState]:
        tree.num_clients(updates)
        anchor = reference(state.previous, updates, params=params, weights=weights, **info)
        labels = layers(state.previous)
        systems = grouped_systems(labels, updates, anchor, tree.spread(weights, updates), raw_single)
        parts = zip(*map(gram_system, systems.values()), strict=True)
        answers = solver(*map(jnp.stack, parts))  # all groups in one batch
        directions = {
            label: finish(system, combine(system, y))
            for (label, system), y in zip(systems.items(), answers, strict=True)
        }
        direction = ungroup(labels, updates, directions)
        return direction, CraftState(direction)

    return Aggregator(init, update)
