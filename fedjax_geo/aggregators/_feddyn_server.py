"""The server half of FedDyn.

Acar, Zhao, Matas, Mattina, Whatmough, Saligrama, 2021, "Federated Learning Based on Dynamic Regularization",
arXiv 2111.04263, algorithm 1. With n clients in all, of which S take part,

    h <- h + alpha / n sum_S g_i,   theta <- mean_S theta_i - h / alpha,

which as a pseudo-gradient is ``g = mean_S g_i + h / alpha`` with the new h.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_geo import _validate, tree
from fedjax_geo.aggregators._cohort import cohort, combine
from fedjax_geo.types import Aggregator, PyTree


class FedDynState(NamedTuple):
    """The server's correction h, like params."""

    correction: PyTree


def feddyn_server(alpha: float) -> Aggregator:
    """The aggregator that belongs to FedDyn's clients.

    The mean takes the round's weights, over the clients of positive weight and finite update; the paper's own is
    that of ``weightings.uniform()``, and FedVG with FedDyn (FedVG, 2026, arXiv 2602.21399) is that of ``fedvg()``.
    The correction is a plain sum. Without a usable client the direction is zero and h stays.

    Args:
        alpha: strength of the clients' dynamic regularisation; the same as theirs.

    Returns:
        An optax link that reads ``weights`` and ``num_clients``. To be followed by ``optax.sgd(1.0)``.

    Raises:
        ValueError: if alpha is not positive.
    """
    _validate.positive("alpha", alpha)

    def init(params: PyTree) -> FedDynState:
        return FedDynState(jax.tree.map(lambda p: jnp.zeros(p.shape, p.dtype), params))

    def update(
        updates: PyTree,
        state: FedDynState,
        params: PyTree = None,
        *,
        weights: Any,
        num_clients: int,
        **info: Any,
    ) -> tuple[PyTree, FedDynState]:
        del params, info
        clients = cohort(updates, weights)
        total = tree.like_params(updates, combine(clients.usable.astype(clients.norms.dtype), clients.updates))
        mean = tree.weighted_mean(tree.normalize(weights, clients.usable), updates)
        step = alpha / num_clients
        correction = jax.tree.map(lambda h, g: (h + step * g).astype(h.dtype), state.correction, total)
        some = clients.number > 0
        direction = jax.tree.map(lambda g, h: jnp.where(some, g + h / alpha, 0).astype(g.dtype), mean, correction)
        return direction, FedDynState(correction)

    return Aggregator(init, update)
