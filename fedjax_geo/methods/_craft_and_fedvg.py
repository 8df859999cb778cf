"""The two methods at the heart of the library, alone and on others."""

import functools
from collections.abc import Callable

import optax

from fedjax_geo import layers
from fedjax_geo.aggregators import craft as craft_aggregator
from fedjax_geo.clients import ditto, local_sgd
from fedjax_geo.methods._averaging import fedavg, fedavgm
from fedjax_geo.methods._local_training import elastic, feddyn, fedprox, scaffold
from fedjax_geo.methods._rates import local_optimizer, server_sgd
from fedjax_geo.transforms import match_lengths
from fedjax_geo.types import Method
from fedjax_geo.weightings import by_examples, l1, mix, spectral_norm
from fedjax_geo.weightings import fedvg as fedvg_weighting


def craft(lr: float = 0.05, server_lr: float = 0.1, decay: float = 1.0) -> Method:
    """Reference-anchored constrained aggregation, a share of descent for every client (arXiv 2605.21317)."""
    server = optax.chain(craft_aggregator(), server_sgd(server_lr))
    return Method(local_sgd(local_optimizer(lr, decay)), by_examples(), server)


def craft_matched(lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0, factor: float = 1.0) -> Method:
    """CRAFT whose step has the mean length of the clients' updates, so that it can settle; not in the paper."""
    server = optax.chain(match_lengths(craft_aggregator(), factor), server_sgd(server_lr))
    return craft(lr, decay=decay)._replace(server=server)


def craft_ditto(lr: float = 0.05, server_lr: float = 0.1, decay: float = 1.0, lam: float = 0.1) -> Method:
    """Ditto whose global model is made by CRAFT (arXiv 2605.21317)."""
    method = craft(lr, server_lr, decay)
    return method._replace(client=ditto(method.client, local_optimizer(lr, decay), lam))


def craft_fedvg(lr: float = 0.05, server_lr: float = 0.1, decay: float = 1.0) -> Method:
    """CRAFT whose targets are FedVG's weights."""
    return craft(lr, server_lr, decay)._replace(weighting=fedvg_weighting())


def fedvg(lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0) -> Method:
    """Clients weighted by the inverse norm of their validation gradient (FedVG, 2026, arXiv 2602.21399)."""
    return fedavg(lr, server_lr, decay)._replace(weighting=fedvg_weighting())


def fedvg_layerwise(
    lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0, spectral: bool = False
) -> Method:
    """FedVG, each tensor weighted by itself (arXiv 2602.21399); spectral: by its largest singular value."""
    weighting = fedvg_weighting(norm=spectral_norm if spectral else l1, layers=layers.leaf)
    return fedavg(lr, server_lr, decay)._replace(weighting=weighting)


def fedvg_blockwise(lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0) -> Method:
    """FedVG, each top-level module, such as a stage of a ResNet, weighted by itself (arXiv 2602.21399)."""
    return fedavg(lr, server_lr, decay)._replace(weighting=fedvg_weighting(layers=layers.block))


def fedvg_fedavg(lr: float = 0.05, server_lr: float = 1.0, decay: float = 1.0) -> Method:
    """FedVG on FedAvg as its authors combine them: the mean of both weightings."""
    weighting = mix(fedvg_weighting(), by_examples())
    return fedavg(lr, server_lr, decay)._replace(weighting=weighting)


def fedvg_on(recipe: Callable[..., Method]) -> Callable[..., Method]:
    """The recipe with FedVG's weights in place of its own; everything else stays."""

    @functools.wraps(recipe)
    def build(*arguments: float, **hyperparameters: float) -> Method:
        return recipe(*arguments, **hyperparameters)._replace(weighting=fedvg_weighting())

    build.__name__ = f"fedvg_{recipe.__name__}"
    build.__doc__ = f"{recipe.__name__} with FedVG's weights in place of its own (arXiv 2602.21399)."
    return build


def fedvg_fedavgm(
    lr: float = 0.05,
    server_lr: float = 1.0,
    decay: float = 1.0,
    momentum: float = 0.9,
    nesterov: bool = True,
) -> Method:
    """fedavgm with FedVG's weights in place of its own, with Nesterov momentum (arXiv 2602.21399)."""
    return fedvg_on(fedavgm)(lr, server_lr, decay, momentum, nesterov)


fedvg_fedprox = fedvg_on(fedprox)
fedvg_scaffold = fedvg_on(scaffold)
fedvg_feddyn = fedvg_on(feddyn)
fedvg_elastic = fedvg_on(elastic)
