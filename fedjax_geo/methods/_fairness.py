"""Methods that bargain between clients: by their losses, or by the geometry of their updates."""

import optax

from fedjax_geo import aggregators, weightings
from fedjax_geo.aggregators import weighted_mean
from fedjax_geo.clients import full_batch_gradient, local_sgd
from fedjax_geo.methods._rates import local_optimizer, local_rate, server_sgd
from fedjax_geo.types import Aggregator, Method, Weighting


def _method(lr: float, server_lr: float, decay: float, weighting: Weighting, aggregator: Aggregator) -> Method:
    client = local_sgd(local_optimizer(lr, decay))
    return Method(client, weighting, optax.chain(aggregator, server_sgd(server_lr)))


def afl(lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0, step: float = 0.01) -> Method:
    """Agnostic FL: mixture weights that rise with the loss (Mohri, Sivek, Suresh, 2019, arXiv 1902.00146)."""
    return _method(lr, server_lr, decay, weightings.afl(step), weighted_mean())


def term(lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0, t: float = 1.0) -> Method:
    """Tilted weights, n_i exp(t F_i) (Li, Beirami, Sanjabi, Smith, 2021, arXiv 2007.01162)."""
    return _method(lr, server_lr, decay, weightings.tilted(t), weighted_mean())


def qfedavg(lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0, q: float = 0.1) -> Method:
    """q-FFL: clients of higher loss count more (Li, Sanjabi, Beirami, Smith, 2020, arXiv 1905.10497)."""
    aggregator = aggregators.qfedavg(q, lr=local_rate(lr, decay))
    return _method(lr, server_lr, decay, weightings.uniform(), aggregator)


def fedfv(lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0, alpha: float = 0.1) -> Method:
    """Conflicting updates projected off one another (Wang et al., 2021, arXiv 2104.14937)."""
    return _method(lr, server_lr, decay, weightings.uniform(), aggregators.fedfv(alpha))


def fedmgda(lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0, eps: float = 0.1) -> Method:
    """FedMGDA+: the shortest mixture of unit updates near n_i / n (Hu et al., 2022, arXiv 2006.11489)."""
    return _method(lr, server_lr, decay, weightings.by_examples(), aggregators.fedmgda(eps))


def fedlf(lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0, full_gradient: bool = False) -> Method:
    """Layer-wise fair descent (Pan et al., 2024, AAAI); full_gradient: the authors' setting, one gradient step."""
    method = _method(lr, server_lr, decay, weightings.uniform(), aggregators.fedlf())
    if not full_gradient:
        return method
    rate = local_rate(lr * server_lr, decay)
    return method._replace(client=full_batch_gradient(), server=optax.chain(aggregators.fedlf(), optax.sgd(rate)))


def config(lr: float = 0.05, server_lr: float = 0.1, decay: float = 1.0) -> Method:
    """ConFIG: the direction of equal agreement; its length is a sum over clients (arXiv 2408.11104)."""
    return _method(lr, server_lr, decay, weightings.uniform(), aggregators.config())
