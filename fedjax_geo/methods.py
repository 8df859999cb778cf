"""Named recipes: every method is a client algorithm, a weighting and a server chain.

A recipe is a function of a few hyperparameters with its paper's defaults; compose ``Method`` by hand for anything
else. ``METHODS`` is the registry by name that command lines read.
"""

import difflib
from collections.abc import Callable

import optax

from fedjax_geo import _validate
from fedjax_geo.aggregators import craft as craft_aggregator
from fedjax_geo.aggregators import weighted_mean
from fedjax_geo.clients import local_sgd
from fedjax_geo.transforms import SecondMoment, adagrad_moment, adam_moment, scale_by_fedopt, yogi_moment
from fedjax_geo.types import ClientAlgorithm, Method, Weighting
from fedjax_geo.weightings import by_examples, mix
from fedjax_geo.weightings import fedvg as fedvg_weighting

Recipe = Callable[..., Method]


def decaying_sgd(lr: float, decay: float = 1.0) -> ClientAlgorithm:
    """Local SGD with the learning rate ``lr * decay^t`` in round t, counted from 0.

    Raises:
        ValueError: if lr or decay is not a finite number above 0.
    """
    _validate.positive("lr", lr)
    _validate.positive("decay", decay)
    if decay == 1.0:
        return local_sgd(optax.sgd(lr))
    return local_sgd(lambda round: optax.sgd(lr * decay**round))


def _averaged(weighting: Weighting, lr: float, decay: float, *after: optax.GradientTransformation) -> Method:
    return Method(decaying_sgd(lr, decay), weighting, optax.chain(weighted_mean(), *after))


def fedavg(lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0) -> Method:
    """Local SGD, weighted mean of the client models (McMahan et al., 2017, arXiv 1602.05629)."""
    _validate.positive("server_lr", server_lr)
    return _averaged(by_examples(), lr, decay, optax.sgd(server_lr))


def fedavgm(
    lr: float = 0.05,
    server_lr: float = 1.0,
    decay: float = 1.0,
    momentum: float = 0.9,
    nesterov: bool = False,
) -> Method:
    """FedAvg with server momentum (Hsu, Qi, Brown, 2019, arXiv 1909.06335)."""
    _validate.positive("server_lr", server_lr)
    _validate.fraction("momentum", momentum)
    return _averaged(by_examples(), lr, decay, optax.sgd(server_lr, momentum, nesterov))


def _fedopt(moment: SecondMoment, lr: float, server_lr: float, decay: float, b1: float, tau: float) -> Method:
    _validate.positive("server_lr", server_lr)
    return _averaged(
        by_examples(), lr, decay, scale_by_fedopt(moment, b1=b1, tau=tau, initial=tau**2), optax.sgd(server_lr)
    )


def fedadagrad(
    lr: float = 0.05, server_lr: float = 0.1, decay: float = 1.0, b1: float = 0.0, tau: float = 1e-3
) -> Method:
    """FedAvg with Adagrad at the server (Reddi et al., 2021, arXiv 2003.00295)."""
    return _fedopt(adagrad_moment(), lr, server_lr, decay, b1, tau)


def fedadam(
    lr: float = 0.05,
    server_lr: float = 0.01,
    decay: float = 1.0,
    b1: float = 0.9,
    b2: float = 0.99,
    tau: float = 1e-3,
) -> Method:
    """FedAvg with Adam at the server, without bias correction (Reddi et al., 2021, arXiv 2003.00295)."""
    return _fedopt(adam_moment(b2), lr, server_lr, decay, b1, tau)


def fedyogi(
    lr: float = 0.05,
    server_lr: float = 0.01,
    decay: float = 1.0,
    b1: float = 0.9,
    b2: float = 0.99,
    tau: float = 1e-3,
) -> Method:
    """FedAvg with Yogi at the server, without bias correction (Reddi et al., 2021, arXiv 2003.00295)."""
    return _fedopt(yogi_moment(b2), lr, server_lr, decay, b1, tau)


def fedvg(lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0) -> Method:
    """Clients weighted by the inverse norm of their validation gradient (FedVG, 2026, arXiv 2602.21399)."""
    _validate.positive("server_lr", server_lr)
    return _averaged(fedvg_weighting(), lr, decay, optax.sgd(server_lr))


def fedvg_fedavg(lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0) -> Method:
    """The mean of FedVG's and FedAvg's weights, what FedVG's authors combine with FedAvg."""
    _validate.positive("server_lr", server_lr)
    return _averaged(mix(fedvg_weighting(), by_examples()), lr, decay, optax.sgd(server_lr))


def _crafted(weighting: Weighting, lr: float, server_lr: float, decay: float) -> Method:
    _validate.positive("server_lr", server_lr)
    server = optax.chain(craft_aggregator(), optax.sgd(server_lr))
    return Method(decaying_sgd(lr, decay), weighting, server)


def craft(lr: float = 0.05, server_lr: float = 0.1, decay: float = 1.0) -> Method:
    """Reference-anchored constrained aggregation, a share of descent for every client (arXiv 2605.21317)."""
    return _crafted(by_examples(), lr, server_lr, decay)


def craft_fedvg(lr: float = 0.05, server_lr: float = 0.1, decay: float = 1.0) -> Method:
    """CRAFT whose targets are FedVG's weights."""
    return _crafted(fedvg_weighting(), lr, server_lr, decay)


METHODS: dict[str, Recipe] = {
    recipe.__name__: recipe
    for recipe in (
        fedavg,
        fedavgm,
        fedadagrad,
        fedadam,
        fedyogi,
        fedvg,
        fedvg_fedavg,
        craft,
        craft_fedvg,
    )
}


def find(name: str) -> Recipe:
    """The recipe of a name.

    Raises:
        ValueError: for an unknown name, with the closest known one.

    >>> find("fedavgg")
    Traceback (most recent call last):
        ...
    ValueError: unknown method 'fedavgg', did you mean 'fedavg'? Known: ...
    """
    if name in METHODS:
        return METHODS[name]
    close = difflib.get_close_matches(name, METHODS, 1)
    hint = f", did you mean '{close[0]}'?" if close else "."
    raise ValueError(f"unknown method '{name}'{hint} Known: {', '.join(sorted(METHODS))}")
