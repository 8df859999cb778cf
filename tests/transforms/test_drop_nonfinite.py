"""A client whose update is not finite is out, whatever the server makes of the others."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toys

from fedjax_geo.aggregators import coordinate_median, qfedavg, weighted_mean
from fedjax_geo.clients import local_sgd
from fedjax_geo.transforms import drop_nonfinite, per_client, top_k
from fedjax_geo.types import Method
from fedjax_geo.weightings import by_examples

RNG = np.random.default_rng(0)
UPDATES = {"a": RNG.normal(size=(4, 2, 3)).astype(np.float32), "t": RNG.normal(size=4).astype(np.float32)}
WEIGHTS = np.float32([0.1, 0.2, 0.3, 0.4])
KEPT = np.array([0, 1, 3])


def told(updates, weights):
    m = len(weights)
    return {
        "weights": jnp.asarray(weights),
        "num_examples": jnp.full(m, 5),
        "num_steps": jnp.full(m, 2),
        "losses": jnp.ones(m),
        "client_ids": jnp.arange(m),
        "round": jnp.zeros((), jnp.int32),
        "key": jax.random.key(0),
    }


def apply(server, updates, weights, state=None, **more):
    updates = jax.tree.map(jnp.asarray, updates)
    params = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), updates)
    state = server.init(params) if state is None else state
    return server.update(updates, state, params, **(told(updates, weights) | more))


def broken(value):
    updates = jax.tree.map(np.copy, UPDATES)
    updates["t"][2] = value
    return updates


def without_it():
    weights = WEIGHTS[KEPT] / WEIGHTS[KEPT].sum()
    return jax.tree.map(lambda leaf: leaf[KEPT], UPDATES), weights


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("inner", [weighted_mean, coordinate_median, lambda: qfedavg(0.5, lr=0.1)])
def test_it_equals_the_cohort_without_that_client(inner, value):
    found, state = apply(drop_nonfinite(inner()), broken(value), WEIGHTS)
    wanted, _ = apply(inner(), *without_it())
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, wanted)
    assert (int(state.last), int(state.total)) == (1, 1)


def test_nothing_changes_where_all_are_finite():
    found, state = apply(drop_nonfinite(weighted_mean()), UPDATES, WEIGHTS)
    wanted, _ = apply(weighted_mean(), UPDATES, WEIGHTS)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, wanted)
    assert (int(state.last), int(state.total)) == (0, 0)


def test_what_the_aggregator_is_told():
    seen = {}

    def update(updates, state, params=None, **info):
        seen.update(info, updates=updates)
        return jax.tree.map(lambda leaf: leaf[0], updates), state

    apply(drop_nonfinite(optax.GradientTransformationExtraArgs(lambda _: (), update)), broken(np.nan), WEIGHTS)
    np.testing.assert_allclose(seen["weights"], np.array([1, 2, 0, 4]) / 7, rtol=1e-6)
    np.testing.assert_array_equal(seen["num_examples"], [5, 5, 0, 5])
    np.testing.assert_array_equal(seen["num_steps"], [2, 2, 0, 2])
    np.testing.assert_array_equal(seen["losses"], [1, 1, 0, 1])
    np.testing.assert_array_equal(seen["client_ids"], [0, 1, 2, 3])
    np.testing.assert_array_equal(seen["updates"]["a"][2], np.zeros((2, 3)))
    assert seen["losses"].dtype == jnp.float32 and seen["num_examples"].dtype == jnp.int32


def test_a_loss_that_is_not_finite_goes_with_its_client():
    losses = jnp.array([1.0, 1.0, np.nan, 1.0])
    found, _ = apply(drop_nonfinite(qfedavg(0.5, lr=0.1)), broken(np.nan), WEIGHTS, losses=losses)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))


def test_weights_by_leaf_and_integer_leaves():
    updates = {"a": np.float32([[1], [np.nan], [5]]), "n": np.int32([1, 2, 3])}
    weights = {"a": jnp.array([0.2, 0.2, 0.6]), "n": jnp.ones(3) / 3}
    link = drop_nonfinite(weighted_mean())
    found, _ = link.update(jax.tree.map(jnp.asarray, updates), link.init(None), weights=weights)
    np.testing.assert_allclose(found["a"], [0.25 * 1 + 0.75 * 5], rtol=1e-6)
    assert found["n"] == 0


def test_where_nobody_remains_the_server_rests():
    server = drop_nonfinite(optax.chain(weighted_mean(), optax.sgd(1.0, momentum=0.9)))
    _, moved = apply(server, UPDATES, WEIGHTS)
    gone = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), UPDATES)
    found, state = apply(server, gone, WEIGHTS, moved)
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(found))
    assert (int(state.last), int(state.total)) == (4, 4)
    jax.tree.map(np.testing.assert_array_equal, state.inner, moved.inner)


def test_rounds_count_what_was_dropped():
    """LIN(1), a broken client, LIN(4): both rounds take the mean of the other two."""
    data = toys.federation([np.full((n, 1), g) for n, g in ((3, 1.0), (9, np.nan), (1, 4.0))])
    server = optax.chain(
        per_client(optax.clip_by_global_norm(100.0)),
        top_k(1.0),
        drop_nonfinite(weighted_mean()),
        optax.sgd(1.0, momentum=0.5),
    )
    method = Method(local_sgd(optax.sgd(0.1)), by_examples(), server)
    state, history = toys.run(method, toys.lin, data, rounds=2, diagnose=None)
    assert float(state.variables.params["w"]) == pytest.approx(-0.175 * (1 + 1.5), rel=1e-5)
    assert not any(m["skipped"] for m in history)
    # The round itself leaves the client out and counts it; nothing is left for the link to find.
    assert [int(m["nonfinite_clients"]) for m in history] == [1, 1] and int(state.server[2].total) == 0


def test_seeds_side_by_side_and_one_trace():
    server = drop_nonfinite(optax.chain(weighted_mean(), optax.adam(0.1)))
    state = server.init(jnp.zeros(2))
    step = jax.jit(lambda u, state: server.update(u, state, jnp.zeros(2), weights=jnp.full(3, 1 / 3)))
    seeds = np.float32(RNG.normal(size=(2, 3, 2)))
    seeds[0, 1, 1] = np.nan
    many, _ = jax.vmap(step, (0, None))(jnp.asarray(seeds), state)
    for _ in range(2):
        for i in range(2):
            np.testing.assert_allclose(step(jnp.asarray(seeds[i]), state)[0], many[i], atol=1e-6)
        _, state = step(jnp.asarray(seeds[0]), state)
        many, _ = jax.vmap(step, (0, None))(jnp.asarray(seeds), state)
    assert step._cache_size() == 1
    assert int(state.total) == 2
