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
from fedjax_geo.aggregators._cohort import cohort, like_params
from fedjax_geo.aggregators._craft import craft, no_reference
from fedjax_geo.aggregators._solvers import Solver
from fedjax_geo.types import Aggregator, PyTree


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
    equal_angles = craft(layers=layers, solver=solver, reference=no_reference, raw_single=False)

    def init(params: PyTree) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    def update(
        updates: PyTree, state: optax.EmptyState, params: PyTree = None, *, weights: Any, **info: Any
    ) -> tuple[PyTree, optax.EmptyState]:
        del info
        clients = cohort(updates, weights)
        stacked = jax.vmap(lambda rows: like_params(updates, rows))(clients.rows)
        like = jax.tree.map(lambda leaf: leaf[0], stacked)
        axis, _ = equal_angles.update(stacked, equal_angles.init(like), params, weights=clients.shares)
        labels = layers(like)
        squares = tree.grouped(lambda a: jnp.sum(jnp.square(tree.wide(a))), labels, axis)
        pulls = tree.grouped(
            lambda a, s: jnp.sum(tree.dot_rows(tree.wide(s), tree.wide(a))), labels, axis, stacked
        )  # sum_i g_i . axis
        factors = {
            label: jnp.where(square > 0, pulls[label] / jnp.where(square > 0, square, 1), 0)
            for label, square in squares.items()
        }
        return jax.tree.map(lambda label, a: (factors[label] * a).astype(a.dtype), labels, axis), state

    return Aggregator(init, update)
