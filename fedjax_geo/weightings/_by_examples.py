"""Weights that need no more than the clients' sizes."""

import jax.numpy as jnp

from fedjax_geo.types import Array, PyTree, Weighting
from fedjax_geo.weightings._separable import separable


def by_examples() -> Weighting:
    """``rho_i = n_i / sum n_j`` over the cohort, the weighting of FedAvg (McMahan et al., 2017)."""

    def weight(size: Array, loss: Array, score: PyTree) -> Array:
        return size.astype(loss.dtype)

    return separable(weight)


def uniform() -> Weighting:
    """Every client of the cohort counts the same."""

    def weight(size: Array, loss: Array, score: PyTree) -> Array:
        return jnp.ones_like(loss)

    return separable(weight)
