"""Agnostic federated learning: the mixture of clients that is worst for the model.

Mohri, Sivek, Suresh, 2019, "Agnostic Federated Learning", arXiv 1902.00146. Each round descends on the model along
``sum_i lambda_i g_i`` and ascends on the mixture, ``lambda <- Proj(lambda + step * F(theta_t))``, Proj onto the
simplex.
"""

import jax.numpy as jnp
from optax.projections import projection_simplex

from fedjax_geo import _validate
from fedjax_geo.types import Array, PyTree, RoundInfo, Weighting


def afl(step: float = 0.01) -> Weighting:
    """Weights ``lambda`` over all clients that grow where the loss is large.

    The paper lets every client take part in every round. Here each client of the population has its entry of
    lambda, found by its id; a cohort S counts by ``lambda_S / sum(lambda_S)``, and only its losses, at the
    parameters that were sent out, enter the ascent: those that were not sampled move by the projection alone. A
    client without examples or with a loss that is not finite does not move its entry, and the latter gets no
    weight. Where every entry of a cohort is zero, nobody counts in that round.

    The paper's result is the average of the models of all rounds. It is not kept here: what is evaluated is the
    model of the last round, as with every other method.

    Args:
        step: rate of the ascent.

    Raises:
        ValueError: if step is not positive.
    """
    _validate.positive("step", step)

    def init(num_clients: int) -> Array:
        return jnp.full(num_clients, 1 / num_clients, jnp.result_type(float))

    def weigh(info: RoundInfo, state: PyTree) -> tuple[Array, PyTree]:
        mixture = state  # lambda [n]
        counted = (info.num_examples > 0) & jnp.isfinite(info.losses)
        losses = jnp.where(counted, info.losses, 0).astype(mixture.dtype)
        moved = projection_simplex(mixture.at[info.client_ids].add(step * losses))
        weights = jnp.where(counted, mixture[info.client_ids], 0)
        return weights, jnp.where(jnp.any(counted), moved, mixture)

    return Weighting(weigh, init=init)
