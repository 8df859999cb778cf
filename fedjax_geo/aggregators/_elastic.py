"""Elastic aggregation: parameters that matter to the clients' outputs move less.

Chen, Hu, Tan, Wei, Wu, 2023, "Elastic Aggregation for Federated Optimization", CVPR. With the sensitivity
``Omega_i`` of each tensor that client i reports,

    zeta = 1 + tau - (sum_i rho_i Omega_i) / max_i Omega_i,   g = zeta sum_i rho_i g_i      for each tensor.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedjax_geo import _validate, tree
from fedjax_geo.aggregators._cohort import cohort, leaf_shares
from fedjax_geo.types import Aggregator, Array, PyTree, Reports


def elastic(tau: float = 0.5) -> Aggregator:
    """The server half of elastic aggregation.

    A client whose update or a sensitivity of which is not finite is left out, and the weights of the others are
    renormalised. A tensor to which nobody is sensitive moves as in the weighted mean, ``zeta = 1``.

    Args:
        tau: least factor on a tensor; zeta lies between tau and 1 + tau.

    Returns:
        An optax link that reads ``weights`` and ``reports.client``: sensitivities, not negative, a tree like
        params of ``[m]``. To be followed by ``optax.sgd(1.0)``.

    Raises:
        ValueError: if tau is negative, and while traced, if the clients do not report sensitivities.
    """
    _validate.non_negative("tau", tau)

    def init(params: PyTree) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    def update(
        updates: PyTree,
        state: optax.EmptyState,
        params: PyTree = None,
        *,
        weights: Any,
        reports: Reports,
        **info: Any,
    ) -> tuple[PyTree, optax.EmptyState]:
        del params, info
        sensitivities = _sensitivities(reports.client, updates)
        clients = cohort(updates, weights, needed=tree.total(sensitivities))
        coefficients = []
        shares = leaf_shares(weights, updates, clients.usable)  # rho_i
        for share, omega, rows in zip(shares, sensitivities, clients.updates, strict=True):
            omega = jnp.where(clients.usable, omega, 0)
            largest = jnp.max(omega)
            relative = jnp.sum(share * omega) / jnp.where(largest > 0, largest, 1)
            zeta = jnp.where(largest > 0, 1 + tau - relative, 1)
            coefficients.append((zeta * share).astype(rows.dtype))
        return tree.like_params(updates, tree.combine(coefficients, clients.updates)), state

    return Aggregator(init, update)


def _sensitivities(report: PyTree, updates: PyTree) -> list[Array]:
    """``Omega [m]`` of each float leaf."""
    missing = set(tree.paths(updates)) - set(tree.paths(report))
    if missing:
        raise ValueError(
            f"elastic needs clients that report a sensitivity per tensor, like params, and there is none for "
            f"{sorted(missing)[0]!r}: use a client algorithm that reports them"
        )
    pairs = zip(jax.tree.leaves(tree.spread(report, updates)), jax.tree.leaves(updates), strict=True)
    return [omega for omega, leaf in pairs if tree.is_float(leaf)]
