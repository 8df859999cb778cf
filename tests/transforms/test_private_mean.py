"""The private mean: clipped, uniform, disturbed by noise of the stated size.

Limits of random tests are five standard deviations of what is measured.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toys

from fedjax_geo.clients import local_sgd
from fedjax_geo.transforms import private_adaptive_mean, private_mean
from fedjax_geo.types import Method
from fedjax_geo.weightings import by_examples

KEY = jax.random.key(0)
EITHER = pytest.mark.parametrize(
    "build", [lambda z: private_mean(1.0, z), lambda z: private_adaptive_mean(z, initial=1.0)]
)


def mean(server, updates, *, key=KEY, num_examples=None, **info):
    updates = jax.tree.map(jnp.asarray, updates)
    m = jax.tree.leaves(updates)[0].shape[0]
    params = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), updates)
    num_examples = jnp.ones(m, jnp.int32) if num_examples is None else jnp.asarray(num_examples)
    return server.update(updates, server.init(params), params, key=key, num_examples=num_examples, **info)


def test_the_noise_on_the_mean_has_the_stated_size():
    """C = 1, sigma = 1, m = 100: .01; nobody sends anything."""
    d = 20_000
    noise, _ = mean(private_mean(1.0, 1.0), {"a": np.zeros((100, d // 2, 2), np.float32)})
    noise = np.asarray(noise["a"]).ravel()
    assert abs(noise.std() - 0.01) < 5 * 0.01 / np.sqrt(2 * d)
    assert abs(noise.mean()) < 5 * 0.01 / np.sqrt(d)


@pytest.mark.parametrize(("clip_norm", "sigma", "m"), [(2.0, 0.5, 10), (0.1, 3.0, 4)])
def test_the_noise_is_in_units_of_the_clip_norm(clip_norm, sigma, m):
    d = 20_000
    noise, _ = mean(private_mean(clip_norm, sigma), np.zeros((m, d), np.float32))
    wanted = sigma * clip_norm / m
    assert abs(np.std(noise) - wanted) < 5 * wanted / np.sqrt(2 * d)


def test_without_noise_it_is_the_uniform_mean_of_clipped_updates():
    rng = np.random.default_rng(0)
    updates = {"a": np.float32(rng.normal(size=(5, 2, 3))), "t": np.float32(rng.normal(size=5))}
    found, _ = mean(private_mean(1.5, 0.0), updates, weights=jnp.array([0.9, 0.1, 0, 0, 0]))
    lengths = np.sqrt(np.square(updates["a"]).sum((1, 2)) + np.square(updates["t"]))
    factor = np.minimum(1, 1.5 / lengths)
    assert 0 < (factor < 1).sum() < 5
    np.testing.assert_allclose(found["a"], np.mean(factor[:, None, None] * updates["a"], 0), rtol=1e-5)
    np.testing.assert_allclose(found["t"], np.mean(factor * updates["t"]), rtol=1e-5)
    assert found["t"].shape == ()


@EITHER
def test_one_client_moves_the_mean_by_no_more_than_its_share(build):
    """Whatever it sends, and whether it is there or not: C / m."""
    rng = np.random.default_rng(1)
    updates = np.float32(rng.normal(size=(8, 6)))
    without = updates.copy()
    without[3] = 0
    base, _ = mean(build(0.5), without)
    for sent in (updates[3], updates[3] * 1e6, np.full(6, 1e30), np.full(6, np.nan), np.full(6, np.inf)):
        updates[3] = sent
        found, _ = mean(build(0.5), updates)
        assert np.linalg.norm(np.asarray(found) - np.asarray(base)) <= 1 / 8 + 1e-6
    np.testing.assert_array_equal(found, base)  # what is not finite adds zero


@EITHER
def test_noise_differs_by_round_leaf_and_seed_and_repeats(build):
    updates = {"a": np.zeros((10, 50), np.float32), "b": np.zeros((10, 50), np.float32)}
    one, _ = mean(build(0.5), updates)
    again, _ = mean(build(0.5), updates)
    other, _ = mean(build(0.5), updates, key=jax.random.key(1))
    np.testing.assert_array_equal(one["a"], again["a"])
    limit = 5 / np.sqrt(50)
    for x, y in ((one["a"], one["b"]), (one["a"], other["a"])):
        assert abs(np.corrcoef(x, y)[0, 1]) < limit


def test_parts_of_a_model_do_not_share_noise():
    server = optax.partition(
        {"body": private_mean(1.0, 1.0), "head": private_mean(1.0, 1.0)}, {"a": "body", "b": "head"}
    )
    updates = {"a": np.zeros((10, 50), np.float32), "b": np.zeros((10, 50), np.float32)}
    found, _ = mean(server, updates)
    assert abs(np.corrcoef(found["a"], found["b"])[0, 1]) < 5 / np.sqrt(50)


@EITHER
def test_integer_leaves_small_types_and_seeds_side_by_side(build):
    updates = {"w": jnp.ones((10, 3), jnp.bfloat16), "n": jnp.ones(10, jnp.int32)}
    found, _ = mean(build(0.5), updates)
    assert found["w"].dtype == jnp.bfloat16
    assert (found["n"].dtype, int(found["n"])) == (jnp.int32, 0)
    keys = jax.random.split(KEY, 3)
    many = jax.vmap(lambda key: mean(build(0.5), updates, key=key)[0]["w"])(keys)
    for row, key in zip(many, keys, strict=True):
        np.testing.assert_array_equal(row, mean(build(0.5), updates, key=key)[0]["w"])


@EITHER
@pytest.mark.parametrize("x64", [False, True])
def test_order_and_types(build, x64):
    rng = np.random.default_rng(0)
    with jax.enable_x64(x64):
        updates = jnp.asarray(rng.normal(size=(7, 4)), jnp.result_type(float))
        order = rng.permutation(7)
        found, state = mean(build(0.5), updates)
        other, _ = mean(build(0.5), updates[order])
        assert found.dtype == updates.dtype
        assert all(leaf.dtype == updates.dtype for leaf in jax.tree.leaves(state))
        np.testing.assert_allclose(found, other, rtol=1e-5)


# --- the moving bound ----------------------------------------------------------------------------------------


def test_the_bound_moves_as_without_noise():
    """Two of four are within 1: at the median it stays; a client that is silent says nothing."""
    updates = np.float32([[0.5], [0.9], [3], [4]])
    _, state = mean(private_adaptive_mean(0.0, initial=1.0), updates)
    assert float(state.norm) == 1.0
    _, state = mean(private_adaptive_mean(0.0, initial=1.0, quantile=0.9, rate=0.3), updates)
    np.testing.assert_allclose(state.norm, np.exp(0.3 * 0.4), rtol=1e-6)
    _, state = mean(private_adaptive_mean(0.0, initial=1.0), updates, num_examples=[0, 1, 1, 1])
    np.testing.assert_allclose(state.norm, np.exp(-0.2 * (0.5 - 0.5 / 4 - 0.5)), rtol=1e-6)


def test_updates_and_count_share_one_budget():
    """z = 1 with count noise 1: the updates get (1 - 1/4)^(-1/2), the count 1."""
    d, m = 20_000, 10
    server = private_adaptive_mean(1.0, initial=2.0, count_noise=1.0, rate=0.5)
    noise, _ = mean(server, np.zeros((m, d), np.float32))
    wanted = 2 / np.sqrt(0.75) / m
    assert abs(np.std(noise) - wanted) < 5 * wanted / np.sqrt(2 * d)

    zeros, keys = np.zeros((m, 1), np.float32), jax.random.split(KEY, 4000)
    norms = jax.vmap(lambda key: mean(server, zeros, key=key)[1].norm)(keys)
    counted = 0.5 - np.log(np.asarray(norms) / 2) / 0.5  # the fraction within the bound, truly 1
    assert abs(counted.mean() - 1) < 5 * 0.1 / np.sqrt(4000)
    assert abs(counted.std() - 0.1) < 5 * 0.1 / np.sqrt(8000)


def test_noise_of_the_count_has_a_floor():
    with pytest.raises(ValueError, match=r"count_noise must be above half of noise_multiplier=1\.0, got 0\.5"):
        mean(private_adaptive_mean(1.0), np.zeros((10, 1), np.float32))
    mean(private_adaptive_mean(1.0), np.zeros((11, 1), np.float32))


# --- whole rounds --------------------------------------------------------------------------------------------


def test_rounds_ignore_the_weighting_and_count_the_silent():
    """LIN(1) with 30 examples in one batch, LIN(-3), and a client without examples: divided by three."""
    data = toys.federation([np.full((30, 1), 1.0), np.full((1, 1), -3.0), np.zeros((0, 1))])
    server = optax.chain(private_mean(0.2, 0.0), optax.sgd(1.0))
    method = Method(local_sgd(optax.sgd(0.1)), by_examples(), server)
    state, _ = toys.run(method, toys.lin, data, work=toys.Work(batch_size=40), diagnose=None)
    assert float(state.variables.params["w"]) == pytest.approx(-(0.1 - 0.2) / 3, rel=1e-5)


def test_rounds_have_their_own_noise_in_one_trace():
    data = toys.federation([np.zeros((1, 1))] * 4)
    server = optax.chain(private_mean(1.0, 1.0), optax.sgd(1.0))
    method = Method(local_sgd(optax.sgd(0.1)), by_examples(), server)
    _, history = toys.run(method, toys.lin, data, rounds=3, diagnose=None)
    assert len({float(m["step_norm"]) for m in history}) == 3


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: private_mean(0.0, 1.0), "clip_norm must be"),
        (lambda: private_mean(1.0, -1.0), "noise_multiplier must be"),
        (lambda: private_mean(np.inf, 1.0), "clip_norm must be"),
        (lambda: private_adaptive_mean(np.nan), "noise_multiplier must be"),
        (lambda: private_adaptive_mean(1.0, quantile=2), "quantile must be"),
        (lambda: private_adaptive_mean(1.0, count_noise=-1), "count_noise must be"),
    ],
)
def test_arguments_out_of_range_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()
