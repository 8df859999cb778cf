"""How a client trains."""

from collections.abc import Callable

from fedjax_geo.clients._ditto import DittoState, FirstModel, ditto, global_model, initial_model
from fedjax_geo.clients._dropout import dropout
from fedjax_geo.clients._elastic import Objective, elastic, label_loss, output_norm
from fedjax_geo.clients._feddyn import feddyn
from fedjax_geo.clients._fedlc import class_counts, fedlc
from fedjax_geo.clients._fedprox import fedprox
from fedjax_geo.clients._fedrep import fedrep
from fedjax_geo.clients._fine_tune import fine_tune
from fedjax_geo.clients._full_batch_gradient import full_batch_gradient
from fedjax_geo.clients._keep_local import (
    KeptState,
    Selection,
    fedbn,
    fedper,
    keep_local,
    module_named,
    norms,
    params_where,
)
from fedjax_geo.clients._local import LocalResult, Optimizer, local_steps
from fedjax_geo.clients._local_sgd import local_sgd
from fedjax_geo.clients._moon import moon
from fedjax_geo.clients._own import Own
from fedjax_geo.clients._scaffold import scaffold
from fedjax_geo.clients._straggler import straggler
from fedjax_geo.types import ClientAlgorithm

# Every client algorithm, wrappers included, for suites that test what all of them promise: one line for a new one.
CLIENTS: dict[str, Callable[..., ClientAlgorithm]] = {
    constructor.__name__: constructor
    for constructor in (
        ditto,
        dropout,
        elastic,
        fedbn,
        feddyn,
        fedlc,
        fedper,
        fedprox,
        fedrep,
        fine_tune,
        full_batch_gradient,
        local_sgd,
        moon,
        scaffold,
        straggler,
    )
}

__all__ = [
    "CLIENTS",
    "DittoState",
    "FirstModel",
    "KeptState",
    "LocalResult",
    "Objective",
    "Optimizer",
    "Own",
    "Selection",
    "class_counts",
    "ditto",
    "dropout",
    "elastic",
    "fedbn",
    "feddyn",
    "fedlc",
    "fedper",
    "fedprox",
    "fedrep",
    "fine_tune",
    "full_batch_gradient",
    "global_model",
    "initial_model",
    "keep_local",
    "label_loss",
    "local_sgd",
    "local_steps",
    "module_named",
    "moon",
    "norms",
    "output_norm",
    "params_where",
    "scaffold",
    "straggler",
]
