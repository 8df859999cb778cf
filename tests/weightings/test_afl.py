"""AFL: the mixture of all clients ascends where they were seen."""

import fedvg_setup as setup
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toys

from fedjax_geo.aggregators import weighted_mean
from fedjax_geo.clients import local_sgd
from fedjax_geo.round import make_round
from fedjax_geo.types import Method, Task
from fedjax_geo.weightings import afl, by_examples, mix


def info(losses, ids=None, num_examples=None):
    losses = jnp.asarray(losses, jnp.float32)
    base = setup.info(num_examples=[1] * len(losses) if num_examples is None else num_examples)
    ids = jnp.arange(len(losses)) if ids is None else jnp.asarray(ids)
    return base._replace(losses=losses, client_ids=ids)


def project(point):
    """Onto the simplex, by sorting (Held, Wolfe, Crowder, 1974)."""
    u = np.sort(point)[::-1]
    means = (np.cumsum(u) - 1) / np.arange(1, len(u) + 1)
    return np.maximum(point - means[np.flatnonzero(u > means)[-1]], 0)


@pytest.mark.parametrize(
    ("mixture", "losses", "after"),
    [
        ((0.5, 0.5), (0.2, 0.1), (0.55, 0.45)),
        ((0.1, 0.9), (0.0, 0.3), (0, 1)),
        ((0.3, 0.3, 0.4), (0.1, 0.0, 0.1), (1 / 3, 0.7 / 3, 1.3 / 3)),
    ],
)
def test_the_mixture_ascends_and_is_projected(mixture, losses, after):
    weights, found = afl(step=1.0).weigh(info(losses), jnp.array(mixture))
    np.testing.assert_allclose(weights, mixture, rtol=1e-6)  # the weights of a round come before its losses
    np.testing.assert_allclose(found, after, atol=1e-6)


@pytest.mark.parametrize(("x64", "tolerance"), [(False, 1e-6), (True, 1e-13)])
def test_the_projection_is_the_nearest_point_of_the_simplex(x64, tolerance):
    rng = np.random.default_rng(0)
    with jax.enable_x64(x64):
        weigh = jax.jit(afl(step=1.0).weigh)
        for _ in range(20):
            mixture, losses = rng.dirichlet(np.ones(7)), rng.exponential(size=7) * rng.choice([0.01, 0.3, 5])
            given = info(losses)._replace(losses=jnp.asarray(losses))
            _, found = weigh(given, jnp.asarray(mixture))
            np.testing.assert_allclose(found, project(mixture + losses), atol=tolerance)


def test_it_starts_even_over_the_population():
    state = afl().init(4)
    np.testing.assert_array_equal(state, np.full(4, 0.25, np.float32))
    assert not state.weak_type
    assert mix(afl(), by_examples()).init(4)[0].shape == (4,)


def test_clients_that_were_not_sampled_move_by_the_projection_alone():
    mixture = np.array([0.2, 0.1, 0.3, 0.15, 0.25])
    weights, found = afl(step=1.0).weigh(info([0.4, 0.2], ids=[3, 1]), jnp.asarray(mixture, jnp.float32))
    np.testing.assert_allclose(weights, [0.15, 0.1], rtol=1e-6)
    np.testing.assert_allclose(found, project(mixture + np.array([0, 0.2, 0, 0.4, 0])), atol=1e-6)
    unsampled = (np.asarray(found) - mixture)[[0, 2, 4]]
    np.testing.assert_allclose(unsampled, unsampled[0], atol=1e-6)  # one shift for all of them


def test_order_of_the_cohort_does_not_matter():
    mixture = jnp.array([0.2, 0.1, 0.3, 0.15, 0.25])
    one = afl(step=0.5).weigh(info([0.4, 0.2, 0.7], ids=[3, 1, 0]), mixture)
    other = afl(step=0.5).weigh(info([0.7, 0.4, 0.2], ids=[0, 3, 1]), mixture)
    np.testing.assert_array_equal(one[0][jnp.array([2, 0, 1])], other[0])
    np.testing.assert_array_equal(one[1], other[1])


def test_nobody_counts_and_the_mixture_stays():
    mixture = jnp.array([0.2, 0.1, 0.7])
    weights, found = afl().weigh(info([5.0, 5.0], ids=[0, 2], num_examples=[0, 0]), mixture)
    np.testing.assert_array_equal(weights, [0, 0])
    np.testing.assert_array_equal(found, mixture)


@pytest.mark.parametrize("loss", [np.nan, np.inf, -np.inf])
def test_a_loss_that_is_not_finite_gets_no_weight_and_moves_nothing(loss):
    mixture = jnp.array([0.5, 0.25, 0.25])
    weights, found = afl(step=1.0).weigh(info([loss, 0.3, 0.0]), mixture)
    np.testing.assert_array_equal(weights, [0, 0.25, 0.25])
    np.testing.assert_allclose(found, [0.4, 0.45, 0.15], atol=1e-6)


def remembering():
    """A server that keeps what it was told of the cohort."""

    def link(params):
        return {"ids": jnp.zeros(2, jnp.int32), "weights": jnp.zeros(2)}

    def update(updates, state, params=None, *, client_ids, weights, **info):
        return updates, {"ids": client_ids, "weights": weights}

    return optax.GradientTransformationExtraArgs(link, update)


def test_rounds_follow_the_client_and_not_its_place():
    """LIN with two of five clients a round, against the formula by the clients' ids."""
    slopes, step, lr, rounds = np.array([1.0, -2, 0.5, 3, -1]), 0.2, 0.1, 6
    data = toys.federation([np.full((1, 1), g) for g in slopes])
    method = Method(
        local_sgd(optax.sgd(lr)), afl(step), optax.chain(remembering(), weighted_mean(), optax.sgd(1.0))
    )
    process = make_round(method, Task(toys.lin, data.prepare, toys.loss_is_output), cohort=2, diagnose=None)
    data, key, step_round = jax.tree.map(jnp.asarray, data), jax.random.key(1), jax.jit(process.step)
    state = process.init(key, data)
    mixture, w, cohorts = np.full(5, 0.2), 0.0, set()
    for _ in range(rounds):
        state, _ = step_round(state, key, data)
        ids, weights = np.asarray(state.server[0]["ids"]), np.asarray(state.server[0]["weights"])
        wanted = mixture[ids] / mixture[ids].sum()
        np.testing.assert_allclose(weights, wanted, atol=1e-5)
        ascent = np.zeros(5)
        ascent[ids] = step * slopes[ids] * w
        mixture, w = project(mixture + ascent), w - lr * wanted @ slopes[ids]
        np.testing.assert_allclose(state.weighting, mixture, atol=1e-5)
        assert float(state.variables.params["w"]) == pytest.approx(w, abs=1e-6)
        cohorts.add(tuple(sorted(ids.tolist())))
    assert len(cohorts) > 2


def test_the_hardest_client_wins_the_mixture():
    """QUAD(1, a) with a = 0, 0, 4: the minimum of the worst loss is at 2, of the mean at 4/3."""
    data = toys.federation([np.array([[1.0, a]]) for a in (0, 0, 4)])
    state, _ = toys.run(
        Method(local_sgd(optax.sgd(0.05)), afl(0.02), optax.chain(weighted_mean(), optax.sgd(1.0))),
        toys.quad,
        data,
        rounds=300,
        diagnose=None,
    )
    assert float(state.variables.params["w"]) == pytest.approx(2.0, abs=0.15)
    assert float(state.weighting[2]) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("step", [0, -1, np.nan, np.inf])
def test_the_step_is_checked(step):
    with pytest.raises(ValueError, match="step must be"):
        afl(step)
