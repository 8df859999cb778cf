"""Building every entry of a registry by reading its signature, so that nothing is skipped; cheaper rounds."""

import inspect

import optax
import pytest

from fedjax_geo import shuffle
from fedjax_geo.clients import local_sgd

SGD = optax.sgd(0.1)
VALUES = {
    "optimizer": SGD,
    "inner": local_sgd(SGD),
    "lr": 0.1,
    "head": "fc2",
    "alpha": 0.1,
    "num_byzantine": 1,
    "fraction": 0.2,
    "probability": 0.5,
    "t": 1.0,
}


def build(constructor):
    """The entry with a value for every parameter that has no default; a KeyError asks for one here."""
    parameters = inspect.signature(constructor).parameters.values()
    required = [p.name for p in parameters if p.default is p.empty]
    return constructor(**{name: VALUES[name] for name in required})


@pytest.fixture(autouse=True)
def short_shuffle(monkeypatch):
    """Where it is imported: permutations of 8 passes, not 24, which spare a round a quarter of its compilation.

    For tests that need clients and their examples in some order, whichever. The shuffle has tests of its own.
    """
    monkeypatch.setattr(shuffle, "_ROUNDS", 8)
