"""The server half of FedDyn.

Acar, Zhao, Matas, Mattina, Whatmough, Saligrama, 2021, "Federated Learning Based on Dynamic Regularization",
arXiv 2111.04263, algorithm 1. With n clients in all, of which S take part,

    h <- h + alpha / n sum_S g_i,   theta <- mean_S theta_i - h / alpha,

which as a pseudo-gradient is ``g = mean_S g_i + h / alpha`` with the new h.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_geo import _validate
from fedjax_geo.aggregators._cohort import cohort, combine, like_params
from fedjax_geo.types import Aggregator, PyTree


class FedDynState(NamedTuple):
    """The server's correction h, like params."""

    correction: PyTree


def feddyn_server(alpha: float, num_clients: int) -> Aggregator:
    """The aggregator that belongs to FedDyn's clients.

    The mean is unweighted, as in the paper, over the clients of positive weight and finite update. Without such a
    client the direction is zero and h stays.

    Args:
        alpha: strength of the clients' dynamic regularisation; the same as theirs.
        num_clients: clients in the population, n.

    Returns:
        An optax link that reads ``weights`` (only whether above zero). To be followed by ``optax.sgd(1.0)``.

    Raises:
        ValueError: if alpha is not positive or there is no client.
    """
    _validate.positive("alpha", alpha)
    _validate.at_least("num_clients", num_clients, 1)

    def init(params: PyTree) -> FedDynState:
        return FedDynState(jax.tree.map(lambda p: jnp.zeros(p.shape, p.dtype), params))

    def update(
        updates: PyTree, state: FedDynState, params: PyTree = None, *, weights: Any, **info: Any
    ) -> tuple[PyTree, FedDynState]:
        del params, info
        clients = cohort(updates, weights)
        some = clients.number > 0
        mean = like_params(updates, combine(clients.shares, clients.rows))
        scale = alpha * clients.number / num_clients  # of the mean, that it becomes alpha / n times the sum
        correction = jax.tree.map(lambda h, g: (h + scale * g).astype(h.dtype), state.correction, mean)
        direction = jax.tree.map(lambda g, h: jnp.where(some, g + h / alpha, 0).astype(g.dtype), mean, correction)
        return direction, FedDynState(correction)

    return Aggregator(init, update)
