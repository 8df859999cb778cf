"""How much each client counts."""

from collections.abc import Callable

from fedjax_geo.types import Weighting
from fedjax_geo.weightings._afl import afl
from fedjax_geo.weightings._by_examples import by_examples, uniform
from fedjax_geo.weightings._by_validation import by_validation_accuracy, by_validation_loss
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
from fedjax_geo.weightings._separable import separable
from fedjax_geo.weightings._smoothing import graph_average, moving_average
from fedjax_geo.weightings._tilted import tilted

# Every weighting, for suites that test what all of them promise: one line for a new one.
WEIGHTINGS: dict[str, Callable[..., Weighting]] = {
    constructor.__name__: constructor
    for constructor in (
        afl,
        by_examples,
        by_validation_accuracy,
        by_validation_loss,
        fedvg,
        tilted,
        uniform,
    )
}

__all__ = [
    "WEIGHTINGS",
    "Measure",
    "afl",
    "by_examples",
    "by_validation_accuracy",
    "by_validation_loss",
    "client_update",
    "fedvg",
    "graph_average",
    "l1",
    "l2",
    "mix",
    "moving_average",
    "separable",
    "spectral_norm",
    "tilted",
    "uniform",
    "validation_gradient",
]
