"""What the server makes of the stacked updates."""

from collections.abc import Callable

from fedjax_geo.aggregators._config import config
from fedjax_geo.aggregators._coordinate_median import coordinate_median, trimmed_mean
from fedjax_geo.aggregators._craft import (
    averaged_directions,
    by_length,
    by_share,
    craft,
    last_direction,
    no_reference,
    previous_direction,
)
from fedjax_geo.aggregators._elastic import elastic
from fedjax_geo.aggregators._feddyn_server import feddyn_server
from fedjax_geo.aggregators._fedfv import fedfv
from fedjax_geo.aggregators._fedlf import fedlf
from fedjax_geo.aggregators._fedmgda import fedmgda
from fedjax_geo.aggregators._fednova import fednova, momentum_steps, plain_steps, proximal_steps
from fedjax_geo.aggregators._geometric_median import geometric_median
from fedjax_geo.aggregators._krum import krum
from fedjax_geo.aggregators._norm_bound import norm_bound
from fedjax_geo.aggregators._qfedavg import qfedavg
from fedjax_geo.aggregators._solvers import ridge, spectral
from fedjax_geo.aggregators._weighted_mean import averaged, weighted_mean
from fedjax_geo.types import Aggregator

# Every aggregator, for suites that test what all of them promise: one line for a new one.
AGGREGATORS: dict[str, Callable[..., Aggregator]] = {
    constructor.__name__: constructor
    for constructor in (
        config,
        coordinate_median,
        craft,
        elastic,
        feddyn_server,
        fedfv,
        fedlf,
        fedmgda,
        fednova,
        geometric_median,
        krum,
        qfedavg,
        trimmed_mean,
        weighted_mean,
    )
}

__all__ = [
    "AGGREGATORS",
    "averaged",
    "averaged_directions",
    "by_length",
    "by_share",
    "config",
    "coordinate_median",
    "craft",
    "elastic",
    "feddyn_server",
    "fedfv",
    "fedlf",
    "fedmgda",
    "fednova",
    "geometric_median",
    "krum",
    "last_direction",
    "momentum_steps",
    "no_reference",
    "norm_bound",
    "plain_steps",
    "previous_direction",
    "proximal_steps",
    "qfedavg",
    "ridge",
    "spectral",
    "trimmed_mean",
    "weighted_mean",
]
