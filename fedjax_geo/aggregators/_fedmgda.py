"""FedMGDA+: the shortest combination of unit updates whose weights stay near the given ones.

Hu, Shaloudegi, Zhang, Yu, 2022, "Federated Learning Meets Multi-objective Optimization", arXiv 2006.11489:

    u_i = g_i / ||g_i||,   g = sum lambda_i u_i,
    lambda = argmin ||sum lambda_i u_i||^2  over the simplex with  |lambda_i - lambda0_i| <= eps.
"""

from typing import Any

import jax.numpy as jnp
import optax

from fedjax_geo import _validate, tree
from fedjax_geo.aggregators._cohort import cohort, combine, gram
from fedjax_geo.aggregators._simplex_qp import shortest_in_hull
from fedjax_geo.types import Aggregator, PyTree


def fedmgda(eps: float = 0.1) -> Aggregator:
    """The FedMGDA+ aggregator. Its direction has the length of a mean of unit vectors, at most one.

    A client whose update is zero or not finite has no unit update: it is left out and the weights of the others
    are renormalised.

    Args:
        eps: how far a client's coefficient may be from its weight ``lambda0_i``. 0 is the weighted mean of unit
            updates, 1 or more is MGDA, whose direction no client of positive weight opposes.

    Returns:
        An optax link that reads ``weights``.

    Raises:
        ValueError: if eps is negative or not finite.
    """
    _validate.non_negative("eps", eps)

    def init(params: PyTree) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    def update(
        updates: PyTree, state: optax.EmptyState, params: PyTree = None, *, weights: Any, **info: Any
    ) -> tuple[PyTree, optax.EmptyState]:
        del params, info
        clients = cohort(updates, weights)
        moving = clients.moving
        inverse_norms = jnp.where(moving, 1 / jnp.where(moving, clients.norms, 1), 0)
        given = tree.normalize(tree.overall(weights).astype(inverse_norms.dtype), moving)  # lambda0
        if eps == 0:
            chosen = given
        else:
            cosines = gram(clients.updates, clients.usable) * inverse_norms[:, None] * inverse_norms[None, :]
            box = {} if eps >= 1 else {"center": given, "radius": eps}
            chosen = shortest_in_hull(cosines, moving, **box)
        return tree.like_params(updates, combine(chosen * inverse_norms, clients.updates)), state

    return Aggregator(init, update)
