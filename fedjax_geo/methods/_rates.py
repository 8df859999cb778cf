"""Learning rates of the recipes: local SGD whose rate decays over rounds, a constant rate at the server."""

from collections.abc import Callable

import optax

from fedjax_geo import _validate
from fedjax_geo.types import Array

LocalOptimizer = Callable[[Array], optax.GradientTransformation]


def local_rate(lr: float, decay: float) -> Callable[[Array], Array]:
    """``lr * decay^t`` in round t, counted from 0.

    Raises:
        ValueError: if lr or decay is not a finite number above 0.
    """
    _validate.positive("lr", lr)
    _validate.positive("decay", decay)
    return lambda round: lr * decay**round


def local_optimizer(lr: float, decay: float) -> LocalOptimizer:
    """SGD with that rate, as every client algorithm takes it."""
    rate = local_rate(lr, decay)
    return lambda round: optax.sgd(rate(round))


def server_sgd(server_lr: float) -> optax.GradientTransformation:
    """A step of constant rate at the server.

    Raises:
        ValueError: if the rate is not a finite number above 0.
    """
    return optax.sgd(_validate.positive("server_lr", server_lr))
