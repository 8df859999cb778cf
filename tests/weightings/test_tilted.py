"""TERM: weights exponential in the loss."""

import fedvg_setup as setup
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toys

from fedjax_geo import tree
from fedjax_geo.clients import local_sgd
from fedjax_geo.weightings import by_examples, tilted


def info(losses, num_examples, dtype=jnp.float32):
    return setup.info(num_examples=num_examples)._replace(losses=jnp.asarray(losses, dtype))


def normalized(weighting, given):
    weights, state = weighting.weigh(given, ())
    assert state == ()
    return tree.normalize(weights, given.num_examples > 0)


@pytest.mark.parametrize("t", [-3.0, -0.5, 0.7, 4.0])
@pytest.mark.parametrize(("x64", "tolerance"), [(False, 1e-6), (True, 1e-14)])
def test_weights_are_shares_times_the_exponential(t, x64, tolerance):
    losses, sizes = np.array([0.3, 2.0, 1.1, 0.0]), np.array([10, 30, 5, 55])
    wanted = sizes * np.exp(t * losses)
    with jax.enable_x64(x64):
        found = normalized(tilted(t), info(losses, sizes, jnp.result_type(float)))
        np.testing.assert_allclose(found, wanted / wanted.sum(), rtol=0, atol=tolerance)


def test_two_clients_by_hand():
    """Losses 0 and log 3 with equal sizes: 1/4 and 3/4 for t = 1, reversed for t = -1."""
    given = info([0.0, np.log(3)], [5, 5])
    np.testing.assert_allclose(normalized(tilted(1.0), given), [0.25, 0.75], rtol=1e-6)
    np.testing.assert_allclose(normalized(tilted(-1.0), given), [0.75, 0.25], rtol=1e-6)


def test_no_tilt_is_the_weighting_by_examples():
    given = info([3.0, -2.0, 700.0], [10, 30, 1])
    np.testing.assert_array_equal(tilted(0.0).weigh(given, ())[0], by_examples().weigh(given, ())[0])


def test_losses_count_by_their_differences():
    given = info([1.0, 2.0, 4.0], [3, 3, 2])
    moved = given._replace(losses=given.losses + 64)
    np.testing.assert_allclose(normalized(tilted(0.5), given), normalized(tilted(0.5), moved), rtol=1e-5)


@pytest.mark.parametrize(("t", "wanted"), [(50.0, [0, 0, 1]), (-50.0, [1, 0, 0]), (1e30, [0, 0, 1])])
def test_strong_tilts_and_large_losses_do_not_overflow(t, wanted):
    np.testing.assert_array_equal(normalized(tilted(t), info([1e3, 5e3, 1e4], [1, 100, 1])), wanted)


def test_clients_without_examples_and_broken_losses_do_not_count():
    given = info([0.0, np.nan, np.inf, 9e9, 0.0], [1, 1, 1, 0, 3])
    for t in (-1.0, 0.0, 1.0):
        np.testing.assert_array_equal(tilted(t).weigh(given, ())[0], [1, 0, 0, 0, 3])


def test_nobody_counts():
    np.testing.assert_array_equal(tilted(2.0).weigh(info([1.0, np.nan], [0, 4]), ())[0], [0, 0])


def test_rounds_by_hand():
    """LIN(1), LIN(-1) from 0 with rate .1: the losses are 0, then w and -w."""
    data = toys.federation([np.full((3, 1), 1.0), np.full((1, 1), -1.0)])
    method = toys.averaging(local_sgd(optax.sgd(0.1)), tilted(10.0))
    w = 0.0
    for _ in range(3):
        share = 3 * np.exp(10 * w) / (3 * np.exp(10 * w) + np.exp(-10 * w))
        w -= 0.1 * (share - (1 - share))
    state, _ = toys.run(method, toys.lin, data, rounds=3, diagnose=None)
    assert float(state.variables.params["w"]) == pytest.approx(w, abs=1e-6)


@pytest.mark.parametrize("t", [np.nan, np.inf, -np.inf])
def test_the_tilt_is_checked(t):
    with pytest.raises(ValueError, match="t must be a finite number"):
        tilted(t)
