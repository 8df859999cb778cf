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

import jax

from fedjax_geo import _validate, tree
from fedjax_geo import layers as layer_groups
from fedjax_geo.aggregators._constraints import directions, grouped_systems, ungroup
from fedjax_geo.aggregators._solvers import Solver, ridge
from fedjax_geo.types import Aggregator, Array, PyTree

Memory = Callable[..., PyTree]  # (memory, direction, updates, **info) -> memory for the next round, like params
Reference = Callable[..., PyTree]  # (memory, updates, **info) -> tree like params, any length
Targets = Callable[..., Array]  # (shares [m], lengths [m], **info) of one layer group -> rho [m]


class CraftState(NamedTuple):
    """What references are made of: the last direction, before any server learning rate, unless told otherwise."""

    previous: PyTree


def last_direction(previous: PyTree, direction: PyTree, updates: PyTree, **info: Any) -> PyTree:
    """Remembers the last direction, as the paper does."""
    del previous, updates, info
    return direction


def averaged_directions(beta: float) -> Memory:
    """Remembers ``r <- beta r + (1 - beta) g``, so that the reference is a momentum; 0 is the last direction.

    What no client of a round can see of r is kept in g, so directions are remembered for long already. Inside the
    span of the next round's updates the reference is replaced: the memory matters for what they do not span.

    Raises:
        ValueError: unless beta is at least 0 and below 1.
    """
    _validate.fraction("beta", beta)

    def remember(previous: PyTree, direction: PyTree, updates: PyTree, **info: Any) -> PyTree:
        del updates, info
        return jax.tree.map(lambda r, g: (beta * r + (1 - beta) * g).astype(r.dtype), previous, direction)

    return remember


def previous_direction(previous: PyTree, updates: PyTree, **info: Any) -> PyTree:
    """What is remembered is the reference, as in the paper (zero in the first round)."""
    del updates, info
    return previous


def no_reference(previous: PyTree, updates: PyTree, **info: Any) -> PyTree:
    """The minimum-norm direction that gives every client its share."""
    del updates, info
    return tree.zeros_like(previous)


def by_share(shares: Array, lengths: Array, **info: Any) -> Array:
    """``u_i . g = rho_i``, the paper's targets."""
    del lengths, info
    return shares


def by_length(shares: Array, lengths: Array, **info: Any) -> Array:
    """``u_i . g = rho_i ||g_i||``: with ``no_reference``, the weighted mean wherever updates are orthogonal.

    The direction then is as long as the updates are, and settles when they do.
    """
    del info
    return shares * lengths


def craft(
    *,
    layers: layer_groups.Grouping = layer_groups.module,
    solver: Solver | None = None,
    reference: Reference = previous_direction,
    memory: Memory = last_direction,
    targets: Targets = by_share,
    raw_single: bool = True,
) -> Aggregator:
    """The CRAFT aggregator: stacked updates ``[m, ...]`` to one direction ``[...]``.

    A client whose update is zero or not finite in a layer group is left out of that group, and the weights of
    the others are renormalised there (equal where they sum to zero).

    Args:
        layers: layer groups, each solved on its own; the authors' are ``layers.module``.
        solver: of the Gram systems; default ``ridge()``. ``spectral()`` truncates as the authors' code.
        reference: what the direction stays close to; normalised per group here.
        memory: what the next references are made of: ``last_direction`` or ``averaged_directions(beta)``.
        targets: rho of a layer group, from the clients' weights and the lengths of their updates in it:
            ``by_share``, ``by_length`` or a function of one's own. Targets above zero leave no client in conflict.
            (What depends on the round or on losses alone may as well be a weighting.)
        raw_single: where one client alone is usable, return its raw update, as the authors' code does. That
            direction has the length of a client update, not of order one. False applies the formula.

    Returns:
        An optax link that reads ``weights``, and what ``reference``, ``memory`` and ``targets`` ask for. These
        three get everything that the round offers by keyword.
    """
    solver = ridge() if solver is None else solver

    def init(params: PyTree) -> CraftState:
        return CraftState(tree.zeros_like(params))

    def update(
        updates: PyTree, state: CraftState, params: PyTree = None, *, weights: Any, **info: Any
    ) -> tuple[PyTree, CraftState]:
        tree.num_clients(updates)
        offered = {"params": params, "weights": weights, **info}
        labels = layers(state.previous)
        systems = grouped_systems(
            labels,
            updates,
            reference(state.previous, updates, **offered),
            weights,
            raw_single=raw_single,
            targets=lambda shares, lengths: targets(shares, lengths, **offered),
        )
        direction = ungroup(labels, updates, directions(systems, solver))
        return direction, CraftState(memory(state.previous, direction, updates, **offered))

    return Aggregator(init, update)
