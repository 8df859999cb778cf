"""The adaptive server optimizers of federated learning.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan, 2021, "Adaptive Federated Optimization",
arXiv 2003.00295.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_geo import _validate, tree
from fedjax_geo.types import Array, PyTree

SecondMoment = Callable[[Array, Array], Array]  # (v, squared pseudo-gradient) -> v


class FedOptState(NamedTuple):
    """First and second moments of the pseudo-gradient, like params."""

    first: PyTree
    second: PyTree


def adagrad_moment() -> SecondMoment:
    """``v + g^2``."""
    return lambda v, square: v + square


def adam_moment(b2: float = 0.99) -> SecondMoment:
    """``b2 v + (1 - b2) g^2``."""
    _validate.fraction("b2", b2)
    return lambda v, square: b2 * v + (1 - b2) * square


def yogi_moment(b2: float = 0.99) -> SecondMoment:
    """``v - (1 - b2) g^2 sign(v - g^2)``."""
    _validate.fraction("b2", b2)
    return lambda v, square: v - (1 - b2) * square * jnp.sign(v - square)


def scale_by_fedopt(
    second_moment: SecondMoment, *, b1: float = 0.9, tau: float = 1e-3, initial: float = 0.0
) -> optax.GradientTransformation:
    """The adaptive server step ``m / (sqrt(v) + tau)``, without bias correction.

    Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan, 2021, "Adaptive Federated Optimization",
    arXiv 2003.00295, algorithm 2. The optax optimizers of these names correct the bias of their moments, which
    the federated ones do not.

    Args:
        second_moment: how v gathers squares: ``adagrad_moment()``, ``adam_moment()``, ``yogi_moment()``.
        b1: decay of the first moment, ``m <- b1 m + (1 - b1) g``.
        tau: degree of adaptivity, added to the root.
        initial: v in the first round.

    Raises:
        ValueError: for b1 outside [0, 1), tau not positive or a negative initial value.
    """
    _validate.fraction("b1", b1)
    _validate.positive("tau", tau)
    _validate.non_negative("initial", initial)

    def init(params: PyTree) -> FedOptState:
        return FedOptState(tree.zeros_like(params), jax.tree.map(lambda p: jnp.full_like(p, initial), params))

    def update(direction: PyTree, state: FedOptState, params: PyTree = None) -> tuple[PyTree, FedOptState]:
        del params
        first = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.first, direction)
        second = jax.tree.map(lambda v, g: second_moment(v, jnp.square(g)), state.second, direction)
        step = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + tau), first, second)
        return step, FedOptState(first, second)

    return optax.GradientTransformation(init, update)
