"""What every client algorithm promises: limits that are FedAvg bit for bit, and one result for every layout."""

import jax
import numpy as np
import optax
import pytest
from client_runs import CLASSIFY, SMALL, averaged, by_size, close, plain, ragged, rounds, same

from fedjax_geo.clients import (
    ditto,
    dropout,
    elastic,
    feddyn,
    fedlc,
    fedper,
    fedprox,
    fedrep,
    fine_tune,
    local_sgd,
    moon,
    scaffold,
    straggler,
)
from fedjax_geo.parallel import Strategy

SGD = optax.sgd(0.1)

LIMITS = {
    "fedprox": (2, fedprox(SGD, mu=0.0)),
    "feddyn": (2, feddyn(SGD, alpha=0.0)),
    "moon": (2, moon(SGD, mu=0.0)),
    "fedlc": (2, fedlc(SGD, tau=0.0)),
    "ditto": (2, ditto(local_sgd(SGD), SGD, lam=1.0)),
    "scaffold": (1, scaffold(0.1)),  # all control variates are zero in the first round
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits_are_fedavg_bit_for_bit(name):
    count, client = LIMITS[name]
    state, _ = rounds(count, by_size(client), SMALL, ragged(), **CLASSIFY)
    same(state.variables, plain()[count].variables)


CLIENTS = {
    "everything": straggler(dropout(ditto(scaffold(0.1), SGD), 0.2), 0.5),
    "nested": fine_tune(fedper(feddyn(SGD), "fc2"), SGD),
    "fedrep": fedrep(SGD, "fc2"),
    "elastic": elastic(SGD),
    "moon": moon(SGD, mu=0.5),  # more would amplify the rounding of one layout against another
    "fedlc": fedlc(SGD),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_the_layout_does_not_matter(name):
    """Side by side or one after the other, with two rounds of one trace and finite results."""
    method = averaged(CLIENTS[name])
    together, one_by_one = (
        rounds(2, method, SMALL, ragged(), cohort=6, strategy=Strategy(chunk=chunk), **CLASSIFY)[0]
        for chunk in (None, 1)
    )
    close(together, one_by_one, rtol=1e-4, atol=2e-5)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((together.variables, together.clients)))
