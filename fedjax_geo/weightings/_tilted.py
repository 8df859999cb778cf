"""Tilted empirical risk minimisation (TERM): weights that are exponential in the loss.

Li, Beirami, Sanjabi, Smith, 2021, "Tilted Empirical Risk Minimization", arXiv 2007.01162. The gradient of
``(1 / t) log sum_i rho_i exp(t F_i)`` weighs client i by ``rho_i exp(t F_i)``, normalised.
"""

import math

import jax.numpy as jnp

from fedjax_geo.types import Array, PyTree, RoundInfo, Weighting


def tilted(t: float) -> Weighting:
    """Weights ``rho_i exp(t F_i)`` over the cohort, F_i the loss at the parameters that were sent out.

    A client whose loss is not finite gets no weight.

    Args:
        t: 0 for ``by_examples``; above 0 for the clients of large loss, to their maximum as t grows; below 0
            against them.

    Raises:
        ValueError: if t is not finite.
    """
    if not math.isfinite(t):
        raise ValueError(f"t must be a finite number, got {t}")

    def weigh(info: RoundInfo, state: PyTree) -> tuple[Array, PyTree]:
        counted = (info.num_examples > 0) & jnp.isfinite(info.losses)
        sign = -1 if t < 0 else 1
        favour = sign * info.losses
        most = jnp.max(jnp.where(counted, favour, -jnp.inf))
        # The exponent is 0 for the most favoured client and negative for the others: nothing overflows.
        below = jnp.where(counted, favour - jnp.where(jnp.isfinite(most), most, 0), 0)
        share = info.num_examples.astype(info.losses.dtype) * jnp.exp(abs(t) * below)
        return jnp.where(counted, share, 0), state

    return Weighting(weigh)
