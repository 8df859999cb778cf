"""The weighted mean, and the servers of FedAvg and FedAvgM that it makes with optax's own links."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_geo import tree
from fedjax_geo.aggregators import weighted_mean
from fedjax_geo.transforms import per_client

RNG = np.random.default_rng(0)


def mean(updates, weights):
    link = weighted_mean()
    updates = jax.tree.map(jnp.asarray, updates)
    params = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), updates)
    step, state = link.update(updates, link.init(params), params, weights=jnp.asarray(weights))
    assert state == optax.EmptyState()
    return step


def run(server, directions, theta):
    """Parameters after each step, for one client of weight one whose updates are ``directions``."""
    state, path = server.init(theta), []
    for direction in directions:
        change, state = server.update(jnp.asarray(direction)[None], state, theta, weights=jnp.ones(1))
        theta = optax.apply_updates(theta, change)
        path.append(np.asarray(theta))
    return np.stack(path)


def test_weights_are_used():
    weights = tree.normalize(jnp.array([1.0, 3.0]), jnp.array([True, True]))
    assert mean(np.array([0.0, 4.0], np.float32), weights) == 3.0


def test_mean_of_a_tree_is_that_of_its_leaves():
    updates = {"a": RNG.normal(size=(4, 2, 3)), "b": {"c": RNG.normal(size=4), "d": RNG.normal(size=(4, 5))}}
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    found = mean(jax.tree.map(np.float32, updates), np.float32(weights))
    assert jax.tree.map(jnp.shape, found) == {"a": (2, 3), "b": {"c": (), "d": (5,)}}
    for leaf, rows in zip(jax.tree.leaves(found), jax.tree.leaves(updates), strict=True):
        np.testing.assert_allclose(leaf, np.tensordot(weights, rows, 1), rtol=1e-6)


def test_nobody_counts_and_nothing_moves():
    np.testing.assert_array_equal(mean(np.float32([[1, 2], [3, 4]]), np.zeros(2, np.float32)), [0, 0])


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_client_of_weight_zero_may_hold_anything(broken):
    updates = np.float32([[1, 2], [broken, broken], [3, 5]])
    found = mean(updates, np.float32([0.5, 0, 0.5]))
    np.testing.assert_array_equal(found, mean(updates[[0, 2]], np.float32([0.5, 0.5])))


def test_a_client_that_counts_and_is_not_finite_is_seen():
    assert np.isnan(mean(np.float32([[1.0], [np.nan]]), np.float32([0.5, 0.5]))).all()


def test_integer_leaves_are_left_alone():
    """Their update is zero, which keeps the old value and the type."""
    found = mean({"w": np.float32([1, 3]), "step": np.int32([3, 5]), "on": np.array([True, True])}, [0.5, 0.5])
    assert found["w"] == 2
    assert (found["step"].dtype, int(found["step"])) == (jnp.int32, 0)
    assert (found["on"].dtype, bool(found["on"])) == (jnp.bool_, False)


def test_the_order_of_clients_does_not_matter():
    updates, weights, order = RNG.normal(size=(6, 7)), RNG.dirichlet(np.ones(6)), RNG.permutation(6)
    np.testing.assert_allclose(mean(updates, weights), mean(updates[order], weights[order]), atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_type_of_a_leaf_is_kept(dtype):
    found = mean(jnp.asarray([[1.0, 2.0], [3.0, 4.0]], dtype), jnp.array([0.25, 0.75]))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype(jnp.float32), [2.5, 3.5])


def test_weights_may_differ_by_leaf():
    weights = {"a": np.float32([1, 0]), "b": np.float32([0.25, 0.75])}
    link = weighted_mean()
    found, _ = link.update(
        {"a": jnp.array([1.0, 2.0]), "b": jnp.array([[0.0], [4.0]])},
        (),
        weights=jax.tree.map(jnp.asarray, weights),
    )
    np.testing.assert_array_equal(found["a"], 1)
    np.testing.assert_array_equal(found["b"], [3])


def test_hand_checked_step():
    """g = (1, 0, 2) and (-1, 3, 0) with weights .25 and .75 take zero to (.5, -2.25, -.5)."""
    server = optax.chain(weighted_mean(), optax.sgd(1.0))
    updates, theta = jnp.array([[1.0, 0, 2], [-1, 3, 0]]), jnp.zeros(3)
    change, _ = server.update(updates, server.init(theta), theta, weights=jnp.array([0.25, 0.75]))
    np.testing.assert_array_equal(change, [0.5, -2.25, -0.5])


def test_sgd_with_rate_one_is_the_average_of_the_clients_models():
    theta = jax.tree.map(np.float32, {"a": RNG.normal(size=(2, 3)), "b": RNG.normal(size=())})
    models = jax.tree.map(lambda x: np.float32(x + RNG.normal(size=(4, *np.shape(x)))), theta)
    weights = np.float32([0.1, 0.2, 0.3, 0.4])
    server = optax.chain(weighted_mean(), optax.sgd(1.0))
    updates = jax.tree.map(lambda x, y: jnp.asarray(x - y), theta, models)
    theta = jax.tree.map(jnp.asarray, theta)
    change, _ = server.update(updates, server.init(theta), theta, weights=jnp.asarray(weights))
    moved = optax.apply_updates(theta, change)
    for leaf, rows in zip(jax.tree.leaves(moved), jax.tree.leaves(models), strict=True):
        np.testing.assert_allclose(leaf, np.tensordot(weights, rows, 1), rtol=0, atol=1e-6)


def test_heavy_ball_momentum():
    server = optax.chain(weighted_mean(), optax.sgd(1.0, momentum=0.9))
    found = run(server, [[-0.5, 2.25, 0.5]] * 3, jnp.zeros(3))
    wanted = np.outer([1, 2.9, 5.61], [0.5, -2.25, -0.5])
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_nesterov_momentum():
    server = optax.chain(weighted_mean(), optax.sgd(1.0, momentum=0.9, nesterov=True))
    found = run(server, [[-0.5, 2.25, 0.5]] * 3, jnp.zeros(3))
    wanted = [[0.95, -4.275, -0.95], [2.305, -10.3725, -2.305], [4.0245, -18.11025, -4.0245]]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_clipping_each_client_is_not_clipping_the_mean():
    server = optax.chain(per_client(optax.clip_by_global_norm(1.0)), weighted_mean())
    updates, theta = jnp.array([[3.0, 4], [0, 0.5]]), jnp.zeros(2)
    step, _ = server.update(updates, server.init(theta), theta, weights=jnp.array([0.5, 0.5]))
    np.testing.assert_allclose(step, [0.3, 0.65], rtol=1e-6)
