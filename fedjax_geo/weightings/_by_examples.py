"""Weights that need no more than the clients' sizes."""

import jax.numpy as jnp

from fedjax_geo.types import Array, PyTree, RoundInfo, Weighting


def by_examples() -> Weighting:
    """``rho_i = n_i / sum n_j`` over the cohort, the weighting of FedAvg (McMahan et al., 2017)."""

    def weigh(info: RoundInfo, state: PyTree) -> tuple[Array, PyTree]:
        return info.num_examples.astype(info.losses.dtype), state

    return Weighting(weigh)


def uniform() -> Weighting:
    """Every client of the cohort counts the same."""

    def weigh(info: RoundInfo, state: PyTree) -> tuple[Array, PyTree]:
        return jnp.ones_like(info.losses), state

    return Weighting(weigh)
