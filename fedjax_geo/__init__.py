"""Federated-learning simulation in JAX: all clients of a round train inside one compiled program.

A method is three choices, a client algorithm, a weighting and a server chain of optax links::

    from fedjax_geo import Method, simulate
    from fedjax_geo.aggregators import craft
    from fedjax_geo.clients import local_sgd
    from fedjax_geo.weightings import fedvg

    method = Method(local_sgd(optax.sgd(0.05)), fedvg(), optax.chain(craft(), optax.sgd(0.1)))
    result = simulate(method, model, data, rounds=100, cohort=10)
"""

from fedjax_geo.batches import Work
from fedjax_geo.parallel import Strategy
from fedjax_geo.round import make_round
from fedjax_geo.simulate import simulate
from fedjax_geo.sweep import sweep
from fedjax_geo.tune import measured_strategy
from fedjax_geo.types import (
    Aggregator,
    ClientAlgorithm,
    ClientOutput,
    FederatedData,
    Method,
    Model,
    RoundInfo,
    RoundState,
    Variables,
    Weighting,
)

__version__ = "0.1.0"

__all__ = [
    "Aggregator",
    "ClientAlgorithm",
    "ClientOutput",
    "FederatedData",
    "Method",
    "Model",
    "RoundInfo",
    "RoundState",
    "Strategy",
    "Variables",
    "Weighting",
    "Work",
    "make_round",
    "measured_strategy",
    "simulate",
    "sweep",
]
