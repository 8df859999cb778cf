"""FedProx pulls back to the received model, not to the last step."""

import numpy as np
import optax
import pytest
import toys
from client_runs import by_size, quadratics, rounds, w

from fedjax_geo.batches import Work
from fedjax_geo.clients import fedprox


@pytest.mark.parametrize(
    ("options", "expected"), [({"mu": 1.0}, 0.18), ({"mu": 0.0}, 0.19), ({}, 0.1899)], ids=["1", "0", "default"]
)
def test_two_steps_by_hand(options, expected):
    """QUAD(1, 1) from 0 with rate 0.1: 0.1, then 0.1 + 0.1 (0.9 - 0.1 mu)."""
    method = by_size(fedprox(optax.sgd(0.1), **options))
    state, _ = rounds(1, method, toys.quad, quadratics((1.0, 1.0)), work=Work(epochs=2))
    assert w(state) == pytest.approx(expected, rel=1e-6)


def test_many_steps_against_numpy():
    mu, start, at = 0.7, 0.0, []
    for h, a in [(1.0, 2.0), (3.0, -1.0)]:
        y = start
        for _ in range(6):
            y -= 0.05 * (h * (y - a) + mu * (y - start))
        at.append(y)
    method = by_size(fedprox(optax.sgd(0.05), mu))
    state, _ = rounds(1, method, toys.quad, quadratics((1.0, 2.0), (3.0, -1.0)), work=Work(epochs=6))
    assert w(state) == pytest.approx(np.mean(at), rel=1e-6)
