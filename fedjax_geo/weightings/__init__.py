"""How much each client counts."""

from fedjax_geo.weightings._by_examples import by_examples, uniform
from fedjax_geo.weightings._fedvg import (
    Measure,
    client_update,
    fedvg,
    l1,
    l2,
    spectral_norm,
    validation_gradient,
)
from fedjax_geo.weightings._mix import mix
from fedjax_geo.weightings._smoothing import graph_average, moving_average

__all__ = [
    "Measure",
    "by_examples",
    "client_update",
    "fedvg",
    "graph_average",
    "l1",
    "l2",
    "mix",
    "moving_average",
    "spectral_norm",
    "uniform",
    "validation_gradient",
]
