"""Named recipes: every method is a client algorithm, a weighting and a server chain.

A recipe is a function of a few hyperparameters with its paper's defaults; compose ``Method`` by hand for anything
else. ``METHODS`` is the registry by name that command lines read.
"""

from collections.abc import Callable

from fedjax_geo._validate import choose
from fedjax_geo.methods._averaging import fedadagrad, fedadam, fedavg, fedavgm, fedyogi
from fedjax_geo.methods._craft_and_fedvg import (
    craft,
    craft_ditto,
    craft_fedvg,
    craft_matched,
    fedvg,
    fedvg_blockwise,
    fedvg_elastic,
    fedvg_fedavg,
    fedvg_fedavgm,
    fedvg_feddyn,
    fedvg_fedprox,
    fedvg_layerwise,
    fedvg_on,
    fedvg_scaffold,
)
from fedjax_geo.methods._fairness import afl, config, fedfv, fedlf, fedmgda, qfedavg, term
from fedjax_geo.methods._local_training import (
    ditto,
    elastic,
    feddyn,
    fedlc,
    fednova,
    fedprox,
    finetune,
    moon,
    scaffold,
)
from fedjax_geo.types import Method

Recipe = Callable[..., Method]

METHODS: dict[str, Recipe] = {
    recipe.__name__: recipe
    for recipe in (
        fedavg,
        fedavgm,
        fedadagrad,
        fedadam,
        fedyogi,
        fedprox,
        fednova,
        scaffold,
        feddyn,
        elastic,
        moon,
        fedlc,
        ditto,
        finetune,
        afl,
        term,
        qfedavg,
        fedfv,
        fedmgda,
        fedlf,
        config,
        fedvg,
        fedvg_layerwise,
        fedvg_blockwise,
        fedvg_fedavg,
        fedvg_fedavgm,
        fedvg_fedprox,
        fedvg_scaffold,
        fedvg_feddyn,
        fedvg_elastic,
        craft,
        craft_fedvg,
        craft_matched,
        craft_ditto,
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
    return choose("method", METHODS, name)


__all__ = ["METHODS", "Recipe", "fedvg_on", "find", *METHODS]
