"""CRAFT with other targets and with a memory: options that are not in the paper, by their algebra."""

import craft_oracle as oracle
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_geo.aggregators import averaged_directions, by_length, no_reference

M, WIDTH = 5, 50
UPDATES, WEIGHTS, PREVIOUS = oracle.cohort(2, M, WIDTH)


def close(found, wanted, tolerance=1e-9):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance)


def test_targets_by_length_are_met_and_out_of_sight_the_reference_stays():
    lengths = np.linalg.norm(UPDATES, axis=1)
    step = oracle.direction(UPDATES, WEIGHTS, PREVIOUS, targets=by_length)
    rows, _ = oracle.unit_rows(UPDATES)
    close(rows @ step, WEIGHTS * lengths)
    unseen = np.eye(WIDTH) - np.linalg.pinv(rows) @ rows
    close(unseen @ step, unseen @ PREVIOUS / np.linalg.norm(PREVIOUS))


@pytest.mark.parametrize("scale", [1.0, 1e-7])
def test_orthogonal_updates_with_targets_by_length_give_their_mean(scale):
    """However short they are: what counts as rounding follows the targets."""
    rows = np.linalg.qr(np.random.default_rng(0).normal(size=(WIDTH, M)))[0].T
    updates = scale * np.arange(1, M + 1)[:, None] * rows
    options = {"targets": by_length, "reference": no_reference, "dtype": "float32"}
    close(oracle.direction(updates, WEIGHTS, **options) / scale, WEIGHTS @ updates / scale, 1e-5)


def test_targets_see_the_round():
    """Half of it for the first rounds, then more for those of large loss."""

    def warm(shares, lengths, *, losses, round, **info):
        return jnp.where(round < 3, shares / 2, shares * losses)

    aggregator, update = oracle.compiled(targets=warm)
    updates, losses = jnp.asarray(UPDATES, jnp.float32), np.arange(1.0, M + 1)
    rows, _ = oracle.unit_rows(UPDATES)
    for round, targets in [(2, WEIGHTS / 2), (3, WEIGHTS * losses)]:
        info = {"weights": jnp.asarray(WEIGHTS, jnp.float32), "losses": jnp.asarray(losses, jnp.float32)}
        step, _ = update(updates, aggregator.init(updates[0]), round=jnp.int32(round), **info)
        close(rows @ step, targets, 1e-4)


@pytest.mark.parametrize("beta", [0.9, 0.0])
def test_a_memory_of_averaged_directions(beta):
    """Three rounds against NumPy; beta = 0 is the paper."""
    aggregator, update = oracle.compiled(memory=averaged_directions(beta))
    state, remembered = aggregator.init(jnp.zeros(WIDTH)), np.zeros(WIDTH)
    for seed in range(3):
        updates, weights, _ = oracle.cohort(seed, M, WIDTH)
        step, state = update(jnp.asarray(updates, jnp.float32), state, weights=jnp.asarray(weights, jnp.float32))
        wanted = oracle.craft_direction(updates, weights, remembered)
        remembered = beta * remembered + (1 - beta) * wanted
        close(step, wanted, 1e-4)
        close(state.previous, remembered, 1e-4)


@pytest.mark.parametrize("beta", [-0.1, 1.0])
def test_arguments(beta):
    with pytest.raises(ValueError, match="beta must be at least 0 and below 1"):
        averaged_directions(beta)
