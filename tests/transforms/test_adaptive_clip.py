"""The clip norm follows a quantile of the clients' lengths."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_geo.transforms import adaptive_clip


def even(m):
    return jnp.full(m, 1 / m)


def lengths(updates):
    return np.sqrt(sum(np.square(np.asarray(x)).reshape(len(x), -1).sum(1) for x in jax.tree.leaves(updates)))


def test_one_round_by_hand():
    """Lengths 5, .5, 2 under a bound of 1: one of three is within it."""
    link = adaptive_clip(0.5, initial=1.0, rate=0.2)
    updates = {"a": jnp.array([[3.0], [0.3], [0.0]]), "t": jnp.array([4.0, 0.4, 2.0])}
    clipped, state = link.update(updates, link.init({"a": jnp.zeros(1), "t": jnp.zeros(())}), weights=even(3))
    np.testing.assert_allclose(clipped["a"], [[0.6], [0.3], [0]], rtol=1e-6)
    np.testing.assert_allclose(clipped["t"], [0.8, 0.4, 1], rtol=1e-6)
    np.testing.assert_allclose(state.norm, np.exp(-0.2 * (1 / 3 - 0.5)), rtol=1e-6)


@pytest.mark.parametrize("quantile", [0.25, 0.5, 0.9])
def test_the_bound_finds_the_quantile(quantile):
    updates = jnp.linspace(1, 20, 20)[:, None]
    link = adaptive_clip(quantile, initial=0.1, rate=0.2)
    step = jax.jit(lambda state: link.update(updates, state, weights=even(20))[1])
    state, path = link.init(jnp.zeros(1)), []
    for _ in range(150):
        state = step(state)
        path.append(float(state.norm))
    within = (np.asarray(updates)[:, 0] <= np.mean(path[-40:])).mean()
    assert abs(within - quantile) <= 0.051  # one client of twenty
    assert step._cache_size() == 1


def test_clients_that_do_not_count_do_not_move_the_bound():
    link, updates = adaptive_clip(0.5, initial=1.0), jnp.array([[2.0], [0.5], [0.5], [np.nan]])
    state = link.init(jnp.zeros(1))
    clipped, moved = link.update(updates, state, weights=jnp.array([0.5, 0.0, 0.0, 0.5]))
    np.testing.assert_array_equal(clipped, [[1], [0.5], [0.5], [np.nan]])
    np.testing.assert_allclose(moved.norm, np.exp(0.1), rtol=1e-6)  # nobody is within
    _, same = link.update(updates, state, weights=jnp.zeros(4))
    assert same.norm == state.norm


def test_what_is_within_the_bound_is_not_touched():
    updates = jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)) / 10, jnp.float32)
    link = adaptive_clip(initial=1.0)
    found, _ = link.update(updates, link.init(jnp.array([3.0, 4.0, 0.0])), weights=even(5))
    np.testing.assert_array_equal(found, updates)


def test_very_long_updates_integers_and_small_types():
    updates = {
        "w": jnp.array([[1e30, -1e30], [0.0, 0.0]]),
        "h": jnp.array([[0.0], [3.0]], jnp.bfloat16),
        "n": jnp.array([7, 9]),
    }
    link = adaptive_clip(initial=1.0)
    found, state = link.update(updates, link.init(jax.tree.map(lambda x: x[0], updates)), weights=even(2))
    np.testing.assert_allclose(found["w"], np.array([[1, -1], [0, 0]]) / np.sqrt(2), rtol=1e-5)
    np.testing.assert_array_equal(found["n"], updates["n"])
    assert found["h"].dtype == jnp.bfloat16 and float(found["h"][1, 0]) == 1.0
    assert state.norm.dtype == jnp.float32


@pytest.mark.parametrize("x64", [False, True])
def test_lengths_after_clipping_and_types(x64):
    with jax.enable_x64(x64):
        updates = jnp.asarray(np.random.default_rng(0).normal(size=(6, 4)), jnp.result_type(float))
        link = adaptive_clip(initial=1.5)
        found, state = link.update(updates, link.init(updates[0]), weights=even(6))
        assert state.norm.dtype == found.dtype == updates.dtype
        np.testing.assert_allclose(lengths(found), np.minimum(lengths(updates), 1.5), rtol=1e-6)


def test_seeds_side_by_side_and_clients_in_any_order():
    rng = np.random.default_rng(0)
    updates, order = jnp.asarray(rng.normal(size=(3, 5, 4)), jnp.float32), rng.permutation(5)
    link = optax.chain(adaptive_clip(initial=2.0), adaptive_clip(0.1, initial=1.0))
    state = link.init(updates[0, 0])
    many, states = jax.vmap(lambda u: link.update(u, state, weights=even(5)))(updates)
    for i in range(3):
        one, after = link.update(updates[i][order], state, weights=even(5))
        np.testing.assert_allclose(many[i][order], one, rtol=1e-6)
        np.testing.assert_allclose(states[0].norm[i], after[0].norm, rtol=1e-6)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: adaptive_clip(1.5), "quantile must be"),
        (lambda: adaptive_clip(np.nan), "quantile must be"),
        (lambda: adaptive_clip(initial=0), "initial must be"),
        (lambda: adaptive_clip(rate=-1), "rate must be"),
    ],
)
def test_arguments_out_of_range_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()
