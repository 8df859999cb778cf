"""q-FedAvg: clients of high loss pull harder.

Li, Sanjabi, Beirami, Smith, 2020, "Fair Resource Allocation in Federated Learning", arXiv 1905.10497, algorithm 2.
With ``L = 1 / eta`` for the clients' learning rate eta, ``Delta w_k = L g_k`` and the loss F_k at the server
parameters,

    Delta_k = F_k^q Delta w_k,   h_k = q F_k^(q-1) ||Delta w_k||^2 + L F_k^q,   g = sum Delta_k / sum h_k.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import optax

from fedjax_geo import _validate, tree
from fedjax_geo.aggregators._cohort import cohort, combine
from fedjax_geo.types import Aggregator, Array, PyTree

_LEAST_LOSS = 1e-10  # added to the losses, as the authors do: 0^(q-1) is infinite


def qfedavg(q: float = 0.1, *, lr: float | Callable[[Array], Any]) -> Aggregator:
    """The q-FedAvg aggregator; q = 0 is the unweighted mean of the updates.

    The rule has no data-size weights: every client of positive weight takes part alike. A client whose update or
    loss is not finite is left out; negative losses count as zero.

    Args:
        q: how much fairness; larger favours the worst clients more.
        lr: the clients' learning rate, a number or a function of the round.

    Returns:
        An optax link that reads ``weights`` (only whether above zero), ``losses`` and ``round``. To be followed by
        ``optax.sgd(1.0)``.

    Raises:
        ValueError: if q is negative or lr is not positive.
    """
    _validate.non_negative("q", q)
    if not callable(lr):
        _validate.positive("lr", lr)

    def init(params: PyTree) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    def update(
        updates: PyTree,
        state: optax.EmptyState,
        params: PyTree = None,
        *,
        weights: Any,
        losses: Array,
        round: Array,
        **info: Any,
    ) -> tuple[PyTree, optax.EmptyState]:
        del params, info
        clients = cohort(updates, weights, needed=losses)
        dtype = clients.norms.dtype
        inverse_lr = 1 / jnp.asarray(lr(round) if callable(lr) else lr, dtype)  # L
        loss = jnp.where(clients.usable, jnp.maximum(losses, 0), 1).astype(dtype) + _LEAST_LOSS
        pull = jnp.where(clients.usable, inverse_lr * loss**q, 0)  # Delta_k = pull_k g_k
        curvature = q * loss ** (q - 1) * jnp.square(inverse_lr * clients.norms)
        whole = jnp.sum(curvature + pull)  # sum h_k
        direction = combine(pull / jnp.where(whole > 0, whole, 1), clients.updates)
        return tree.like_params(updates, direction), state

    return Aggregator(init, update)
