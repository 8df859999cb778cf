"""Methods that change how a client trains, with the server half where there is one."""

import optax

from fedjax_geo import aggregators, clients
from fedjax_geo.aggregators import averaged
from fedjax_geo.clients import local_sgd
from fedjax_geo.methods._rates import local_optimizer, local_rate, server_sgd
from fedjax_geo.types import Aggregator, ClientAlgorithm, Method, Weighting
from fedjax_geo.weightings import by_examples, uniform


def _method(
    client: ClientAlgorithm,
    server_lr: float,
    aggregator: Aggregator | None = None,
    weighting: Weighting | None = None,
) -> Method:
    step = server_sgd(server_lr)
    server = averaged(step) if aggregator is None else optax.chain(aggregator, step)
    return Method(client, by_examples() if weighting is None else weighting, server)


def fedprox(lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0, mu: float = 0.01) -> Method:
    """FedAvg whose clients are pulled towards the received model (Li et al., 2020, arXiv 1812.06127)."""
    return _method(clients.fedprox(local_optimizer(lr, decay), mu), server_lr)


def fednova(lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0) -> Method:
    """FedAvg of updates divided by their numbers of steps (Wang et al., 2020, arXiv 2007.07481)."""
    return _method(local_sgd(local_optimizer(lr, decay)), server_lr, aggregators.fednova())


def scaffold(lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0) -> Method:
    """Control variates against client drift, option II (Karimireddy et al., 2020, arXiv 1910.06378)."""
    return _method(clients.scaffold(local_rate(lr, decay)), server_lr, weighting=uniform())


def feddyn(
    lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0, alpha: float = 0.1, clip: float = 10.0
) -> Method:
    """Dynamic regularisation of the clients and a server correction (Acar et al., 2021, arXiv 2111.04263)."""
    sgd = local_optimizer(lr, decay)
    client = clients.feddyn(lambda round: optax.chain(optax.clip_by_global_norm(clip), sgd(round)), alpha)
    return _method(client, server_lr, aggregators.feddyn_server(alpha), uniform())


def elastic(lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0, tau: float = 0.5) -> Method:
    """Elastic aggregation: sensitive parameters move less (Chen et al., 2023, CVPR)."""
    return _method(clients.elastic(local_optimizer(lr, decay)), server_lr, aggregators.elastic(tau))


def moon(
    lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0, mu: float = 5.0, tau: float = 0.5
) -> Method:
    """Model-contrastive local training (Li, He, Song, 2021, arXiv 2103.16257)."""
    return _method(clients.moon(local_optimizer(lr, decay), mu, tau), server_lr)


def fedlc(lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0, tau: float = 1.0) -> Method:
    """Logits calibrated by the client's own label counts (Zhang et al., 2022, arXiv 2209.00189)."""
    return _method(clients.fedlc(local_optimizer(lr, decay), tau), server_lr)


def ditto(lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0, lam: float = 0.1) -> Method:
    """FedAvg plus a personal model per client near the global one (Li et al., 2021, arXiv 2012.04221)."""
    optimizer = local_optimizer(lr, decay)
    return _method(clients.ditto(local_sgd(optimizer), optimizer, lam), server_lr)


def finetune(lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0, epochs: int = 1) -> Method:
    """FedAvg, evaluated also after local fine-tuning of the received model."""
    optimizer = local_optimizer(lr, decay)
    return _method(clients.fine_tune(local_sgd(optimizer), optimizer, epochs), server_lr)
