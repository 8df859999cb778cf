"""SCAFFOLD, option II: control variates and their mean."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toys
from client_runs import (
    DRIFTED,
    OPTIMUM,
    TEN_STEPS,
    TWO,
    alone,
    averaged,
    process,
    rounds,
    same,
    scalar_task,
    vector_model,
    w,
)

from fedjax_geo.batches import Work
from fedjax_geo.clients import local_sgd, scaffold
from fedjax_geo.types import Variables


def lin(*gradients, size=1):
    return toys.federation([np.full((size, 1), g) for g in gradients])


@pytest.mark.parametrize(
    "work", [Work(1, 1), Work(4, 3), Work(100, 2), Work(2, None, 5)], ids=["K=5", "K=6", "K=2", "K=5 by steps"]
)
def test_after_one_round_the_control_variate_is_the_gradient(work):
    """Whatever the number of steps, the batch and the epochs; a rate of 2^-3 makes it exact."""
    state, _ = rounds(1, averaged(scaffold(0.125)), toys.lin, lin(3.0, -2.0, size=5), work=work)
    assert np.asarray(state.clients["w"]).tolist() == [3.0, -2.0]
    assert float(state.shared["w"]) == 0.5


def test_the_shared_variate_moves_by_the_share_of_the_population():
    """Four clients, one takes part with a change of 1: c rises by 1/4."""
    state, _ = rounds(1, averaged(scaffold(0.125)), toys.lin, lin(1.0, 1.0, 1.0, 1.0), cohort=1)
    assert float(state.shared["w"]) == 0.25
    assert sorted(np.asarray(state.clients["w"])) == [0.0, 0.0, 0.0, 1.0]


def test_variates_start_at_zero_and_look_like_params():
    params = {"a": jnp.ones((2, 3)), "b": jnp.ones(())}
    client = scaffold(0.1)
    variates = client.init(Variables(params, {"mean": jnp.ones(3)})), client.init_shared(params)
    for tree in variates:
        assert jax.tree.map(jnp.shape, tree) == {"a": (2, 3), "b": ()}
        assert all(not np.any(leaf) for leaf in jax.tree.leaves(tree))


def test_states_follow_clients_and_the_others_keep_theirs():
    state, step, key, data = process(averaged(scaffold(0.1)), toys.lin, lin(*range(1, 11)), cohort=2)
    seen = np.zeros(10)
    for _ in range(8):
        before = np.asarray(state.clients["w"])
        np.testing.assert_allclose(before, seen, rtol=1e-5)  # what each left when it was last sampled
        state, _ = step(state, key, data)
        after = np.asarray(state.clients["w"])
        moved = np.flatnonzero(before != after)
        assert len(moved) <= 2
        seen[moved] = moved + 1  # c_i of a linear loss is its gradient
        assert float(state.shared["w"]) == pytest.approx(after.mean(), rel=1e-5)
    assert step._cache_size() == 1


def test_the_worked_example():
    """theta (1, 0), K = 5, rate 0.1, c_i (.1, -.2), c (.05, 0), y = (.8, .1): c_i+ = (.45, -.4)."""
    model = vector_model([1.0, 0.0])
    out = alone(
        scaffold(0.1),
        scalar_task(model),
        model.init(None, None),
        [[0.45, -0.4]],
        state={"w": jnp.array([0.1, -0.2])},
        shared={"w": jnp.array([0.05, 0.0])},
        work=Work(epochs=5),
    )
    np.testing.assert_allclose(1 - out.update["w"][0], 0.8, rtol=1e-6)
    np.testing.assert_allclose(-out.update["w"][1], 0.1, rtol=1e-6)
    np.testing.assert_allclose(out.state["w"], [0.45, -0.4], rtol=1e-6)


def test_rounds_against_numpy():
    """Two clients, three rounds, rate that halves: y, c_i and c by a plain loop in float64."""
    pairs = [(1.0, 0.0), (4.0, 3.0)]
    theta, c, own = 0.0, 0.0, [0.0, 0.0]
    for t in range(3):
        eta, ends, new = 0.1 * 0.5**t, [], []
        for i, (h, a) in enumerate(pairs):
            y = theta
            for _ in range(4):
                y -= eta * (h * (y - a) - own[i] + c)
            ends.append(y)
            new.append(own[i] - c + (theta - y) / (4 * eta))
        theta, c = np.mean(ends), c + (sum(new) - sum(own)) / 2
        own = new
    data = toys.federation([np.array([p]) for p in pairs])
    method = averaged(scaffold(lambda round: 0.1 * 0.5**round))
    state, _ = rounds(3, method, toys.quad, data, work=Work(epochs=4))
    assert w(state) == pytest.approx(theta, rel=1e-5)
    np.testing.assert_allclose(state.clients["w"], own, rtol=1e-5)
    assert float(state.shared["w"]) == pytest.approx(c, rel=1e-5)


def test_it_reaches_the_optimum_that_averaging_misses():
    plain, _ = rounds(60, averaged(local_sgd(optax.sgd(0.1))), toys.quad, TWO, work=TEN_STEPS)
    state, _ = rounds(200, averaged(scaffold(0.1)), toys.quad, TWO, work=TEN_STEPS)
    assert w(plain) == pytest.approx(DRIFTED, abs=1e-4)
    assert w(state) == pytest.approx(OPTIMUM, abs=1e-3)


def test_a_client_without_steps_keeps_its_variate():
    model = vector_model([1.0, 0.0])
    own = {"w": jnp.array([0.3, -0.2])}
    out = alone(
        scaffold(0.1),
        scalar_task(model),
        model.init(None, None),
        np.zeros((1, 2)),
        state=own,
        work=Work(10, None, 0),
    )
    same(out.state, own)
    assert not np.any(out.update["w"])


def test_a_client_smaller_than_a_batch_divides_by_its_true_steps():
    state, _ = rounds(1, averaged(scaffold(0.125)), toys.lin, lin(2.0, size=3), work=Work(batch_size=10))
    assert float(state.clients["w"][0]) == 2.0


@pytest.mark.parametrize("lr", [0.0, -0.1, float("nan"), lambda round: float("inf")])
def test_rates_are_checked(lr):
    with pytest.raises(ValueError, match="lr must be a finite number above 0"):
        scaffold(lr)
