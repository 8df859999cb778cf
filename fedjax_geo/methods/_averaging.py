"""FedAvg and its server optimizers."""

import optax

from fedjax_geo import _validate
from fedjax_geo.aggregators import averaged
from fedjax_geo.clients import local_sgd
from fedjax_geo.methods._rates import local_optimizer, server_sgd
from fedjax_geo.transforms import SecondMoment, adagrad_moment, adam_moment, scale_by_fedopt, yogi_moment
from fedjax_geo.types import Method
from fedjax_geo.weightings import by_examples


def _averaged(lr: float, decay: float, *after: optax.GradientTransformation) -> Method:
    return Method(local_sgd(local_optimizer(lr, decay)), by_examples(), averaged(*after))


def fedavg(lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0) -> Method:
    """Local SGD, weighted mean of the client models (McMahan et al., 2017, arXiv 1602.05629)."""
    return _averaged(lr, decay, server_sgd(server_lr))


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
    return _averaged(lr, decay, optax.sgd(server_lr, momentum, nesterov))


def _adaptive(moment: SecondMoment, lr: float, server_lr: float, decay: float, b1: float, tau: float) -> Method:
    step = scale_by_fedopt(moment, b1=b1, tau=tau, initial=tau**2)
    return _averaged(lr, decay, step, server_sgd(server_lr))


def fedadagrad(
    lr: float = 0.05, server_lr: float = 0.1, decay: float = 1.0, b1: float = 0.0, tau: float = 1e-3
) -> Method:
    """FedAvg with Adagrad at the server (Reddi et al., 2021, arXiv 2003.00295)."""
    return _adaptive(adagrad_moment(), lr, server_lr, decay, b1, tau)


def fedadam(
    lr: float = 0.05,
    server_lr: float = 0.01,
    decay: float = 1.0,
    b1: float = 0.9,
    b2: float = 0.99,
    tau: float = 1e-3,
) -> Method:
    """FedAvg with Adam at the server, without bias correction (Reddi et al., 2021, arXiv 2003.00295)."""
    return _adaptive(adam_moment(b2), lr, server_lr, decay, b1, tau)


def fedyogi(
    lr: float = 0.05,
    server_lr: float = 0.01,
    decay: float = 1.0,
    b1: float = 0.9,
    b2: float = 0.99,
    tau: float = 1e-3,
) -> Method:
    """FedAvg with Yogi at the server, without bias correction (Reddi et al., 2021, arXiv 2003.00295)."""
    return _adaptive(yogi_moment(b2), lr, server_lr, decay, b1, tau)
