"""FedDyn: the client's half, and the whole method with its server written as a plain optax link."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toys
from client_runs import OPTIMUM, TEN_STEPS, TWO, rounds, vector_model, w

from fedjax_geo import tree
from fedjax_geo.batches import Work
from fedjax_geo.clients import feddyn
from fedjax_geo.types import Method
from fedjax_geo.weightings import uniform


def dynamic(alpha, num_clients):
    """``h <- h + alpha / n sum_i g_i``, step ``mean_i g_i + h / alpha``."""

    def update(updates, h, params=None, *, weights, **info):
        mean = tree.weighted_mean(weights, updates)
        h = jax.tree.map(lambda h, g: h + alpha / num_clients * jnp.sum(g, axis=0), h, updates)
        return jax.tree.map(lambda g, h: g + h / alpha, mean, h), h

    return optax.GradientTransformationExtraArgs(tree.zeros_like, update)


def method(optimizer, alpha, num_clients):
    server = optax.chain(dynamic(alpha, num_clients), optax.sgd(1.0))
    return Method(feddyn(optimizer, alpha), uniform(), server)


def test_the_worked_example():
    """n = 4, theta (1, 1), clients 0 and 2 answer and end at (.6, 1.2) and (.8, .6); the others have no data."""
    none = np.zeros((0, 2))
    data = toys.federation([np.array([[0.4, -0.2]]), none, np.array([[0.2, 0.4]]), none])
    state, _ = rounds(1, method(optax.sgd(1.0), 0.1, 4), vector_model([1.0, 1.0]), data)
    expected = [[0.04, -0.02], [0, 0], [0.02, 0.04], [0, 0]]
    np.testing.assert_allclose(state.clients["w"], expected, rtol=1e-5)
    np.testing.assert_allclose(state.server[0]["w"], [0.015, 0.005], rtol=1e-5)
    np.testing.assert_allclose(state.variables.params["w"], [0.55, 0.85], rtol=1e-5)


def test_rounds_against_numpy():
    pairs, alpha, eta = [(1.0, 0.0), (4.0, 3.0)], 0.5, 0.1
    theta, h, dual = 0.0, 0.0, np.zeros(2)
    for _ in range(3):
        ends = []
        for i, (curvature, a) in enumerate(pairs):
            y = theta
            for _ in range(4):
                y -= eta * (curvature * (y - a) - dual[i] + alpha * (y - theta))
            ends.append(y)
        g = theta - np.array(ends)
        dual = dual + alpha * g
        h += alpha / 2 * g.sum()
        theta = np.mean(ends) - h / alpha
    data = toys.federation([np.array([p]) for p in pairs])
    state, _ = rounds(3, method(optax.sgd(eta), alpha, 2), toys.quad, data, work=Work(epochs=4))
    assert w(state) == pytest.approx(theta, rel=1e-5)
    np.testing.assert_allclose(state.clients["w"], dual, rtol=1e-4)


def test_it_reaches_the_optimum_that_averaging_misses():
    state, _ = rounds(150, method(optax.sgd(0.1), 1.0, 2), toys.quad, TWO, work=TEN_STEPS)
    assert w(state) == pytest.approx(OPTIMUM, abs=1e-3)
    np.testing.assert_allclose(state.clients["w"], [9.0, -9.0], atol=1e-2)  # the gradients there
