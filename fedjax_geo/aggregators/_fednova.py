"""FedNova: normalised averaging, so that a client of many local steps does not own the objective.

Wang, Liu, Liang, Joshi, Poor, 2020, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization", arXiv 2007.07481, equations 10-11. With ``a_i`` the accumulated weight of a client's local gradients
(its step count for plain SGD),

    tau_eff = sum_i rho_i a_i,   g = tau_eff sum_i rho_i g_i / a_i.

The authors' code counts plain steps in tau_eff when clients train with a proximal term; here tau_eff follows the
equation. Their server momentum is ``optax.sgd(lr, momentum)`` after this link.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import optax

from fedjax_geo import _validate, tree
from fedjax_geo.aggregators._cohort import cohort, leaf_shares
from fedjax_geo.types import Aggregator, Array, PyTree

Accumulation = Callable[[Array], Array]  # K [m], float -> a [m]


def plain_steps(num_steps: Array) -> Array:
    """``a = K``, for local SGD without momentum."""
    return num_steps


def momentum_steps(momentum: float) -> Accumulation:
    """``a = sum_{k=1..K} (1 - beta^k) / (1 - beta)``, for local SGD with heavy-ball momentum.

    >>> momentum_steps(0.5)(jnp.array([1.0, 2.0])).tolist()  # 1, then 1 + 1.5
    [1.0, 2.5]
    """
    _validate.fraction("momentum", momentum)

    def accumulate(num_steps: Array) -> Array:
        return (num_steps - momentum * (1 - momentum**num_steps) / (1 - momentum)) / (1 - momentum)

    return accumulate


def proximal_steps(lr: float, mu: float) -> Accumulation:
    """``a <- (1 - eta mu) a + 1`` at every step, for local SGD with the proximal term of FedProx.

    >>> proximal_steps(0.5, 1.0)(jnp.array([1.0, 2.0])).tolist()
    [1.0, 1.5]
    """
    _validate.positive("lr", lr)
    _validate.fraction("lr * mu", lr * mu)
    decay = lr * mu

    def accumulate(num_steps: Array) -> Array:
        if decay == 0:
            return num_steps
        return -jnp.expm1(num_steps * jnp.log1p(jnp.asarray(-decay, num_steps.dtype))) / decay

    return accumulate


def fednova(accumulation: Accumulation = plain_steps) -> Aggregator:
    """The FedNova aggregator; equal ``a_i`` give the weighted mean.

    A client whose update is not finite or that took no step is left out, and the weights of the others are
    renormalised.

    Args:
        accumulation: local steps to ``a_i``: ``plain_steps``, ``momentum_steps(beta)``, ``proximal_steps(lr, mu)``
            or any other elementwise function, according to how the clients train.

    Returns:
        An optax link that reads ``weights`` and ``num_steps``. To be followed by ``optax.sgd(1.0)``.
    """

    def init(params: PyTree) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    def update(
        updates: PyTree,
        state: optax.EmptyState,
        params: PyTree = None,
        *,
        weights: Any,
        num_steps: Array,
        **info: Any,
    ) -> tuple[PyTree, optax.EmptyState]:
        del params, info
        clients = cohort(updates, weights)
        counted = clients.usable & (num_steps > 0)
        accumulated = accumulation(jnp.where(counted, num_steps, 1).astype(clients.norms.dtype))  # a_i
        coefficients = []
        for share, rows in zip(leaf_shares(weights, updates, counted), clients.updates, strict=True):  # rho_i
            effective = jnp.sum(share * accumulated)  # tau_eff
            coefficients.append((effective * share / accumulated).astype(rows.dtype))
        return tree.like_params(updates, tree.combine(coefficients, clients.updates)), state

    return Aggregator(init, update)
