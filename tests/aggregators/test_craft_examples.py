"""CRAFT's examples that can be checked by hand."""

import craft_oracle as oracle
import jax
import jax.numpy as jnp
import numpy as np
import pytest

Y = 1.310660172  # 1/4 + 3/4 sqrt 2
C1 = [[2, 0, 0], [-1, 1, 0]]
C6 = [[1, 2, 2, 0], [-2, 1, 0, 2], [0, -3, 4, 0]]
C8 = [0.865685425, -0.024264069, 0.5]

# name: updates, weights, previous direction, wanted direction
WELL_POSED = {
    "C1": (C1, (0.25, 0.75), None, (0.25, Y, 0)),
    "C2": (C1, (0.25, 0.75), (0, 3, 4), (0.25, Y, 0.8)),
    "C2b": ([[20, 0, 0], [-0.1, 0.1, 0]], (0.25, 0.75), (0, 21, 28), (0.25, Y, 0.8)),
    "C5": ([[0, 0, 0], [0, 3, 4]], (0.9, 0.1), (1, 0, 0), (0, 3, 4)),
    "C5b": ([[0, 0, 0], *C1], (0.5, 0.125, 0.375), None, (0.25, Y, 0)),
    "C6": (C6, (1 / 6, 2 / 6, 3 / 6), (1, 1, 1, 1), (0.068134172, -0.233752621, 0.449685535, 0.685010482)),
    "C8": ([[3, 4, 0], [0, 0, 5]], (0.5, 0.5), C8, C8),
    "C9": ([[1, 0, 0], [0, 1, 0]], (0, 0), None, (0.5, 0.5, 0)),
}
SINGULAR = {
    "C3": ([[1, 0, 0], [2, 0, 0]], (0.3, 0.7), None, (0.5, 0, 0)),
    "C3b": ([[1, 0, 0], [2, 0, 0]], (0.3, 0.7), (0.6, 0.8, 0), (0.5, 0.8, 0)),
    "C4": ([[1, 0, 0], [-1, 0, 0]], (0.5, 0.5), None, (0, 0, 0)),
    "C4b": ([[1, 0, 0], [-1, 0, 0]], (0.8, 0.2), None, (0.3, 0, 0)),
    "C10": ([[1, 0], [0, 1], [1, 1]], (0.2, 0.3, 0.5), None, (0.251776695, 0.351776695)),
}


def check(updates, weights, previous, wanted, tolerance, **how):
    previous = None if previous is None else np.array(previous, float)
    found = oracle.direction(np.array(updates, float), np.array(weights, float), previous, **how)
    np.testing.assert_allclose(found, np.array(wanted), rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", WELL_POSED | SINGULAR)
def test_examples_agree_with_the_reference_of_the_tests(name):
    updates, weights, previous, wanted = (WELL_POSED | SINGULAR)[name]
    found = oracle.craft_direction(updates, weights, previous)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("solver", oracle.SOLVERS)
@pytest.mark.parametrize("name", WELL_POSED)
def test_well_posed_examples(name, solver):
    check(*WELL_POSED[name], 1e-9, solver=solver)
    check(*WELL_POSED[name], 1e-5, solver=solver, dtype="float32")


@pytest.mark.parametrize("solver", oracle.SOLVERS)
@pytest.mark.parametrize("name", SINGULAR)
def test_singular_examples(name, solver):
    """Where U is exactly singular the ridge answers as the pseudo-inverse does, so it gets the same tolerance."""
    check(*SINGULAR[name], 1e-9, solver=solver)
    check(*SINGULAR[name], 1e-5, solver=solver, dtype="float32")


def test_a_conflict_of_the_mean_is_none_of_craft():
    updates, weights = np.array(C1, float), np.array([0.25, 0.75])
    step = oracle.direction(updates, weights)
    np.testing.assert_allclose(updates @ step, [0.5, 1.060660172], atol=1e-9)
    assert (updates @ (weights @ updates)).min() == -0.5


def test_reference_splits_into_what_clients_see_and_what_they_do_not():
    """C6 once more: the unseen part of the reference, and the minimum-norm direction."""
    updates, weights = np.array(C6, float), np.array([1, 2, 3]) / 6
    seen = oracle.direction(updates, weights)
    np.testing.assert_allclose(seen, [-0.269392034, -0.137316562, 0.522012579, 0.299266247], atol=1e-9)
    whole = oracle.direction(updates, weights, np.ones(4))
    np.testing.assert_allclose(whole - seen, [0.337526205, -0.096436059, -0.072327044, 0.385744235], atol=1e-9)
    np.testing.assert_allclose(updates @ whole, [0.5, 1, 2.5], atol=1e-9)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-5)])
@pytest.mark.parametrize("solver", oracle.SOLVERS)
def test_two_rounds_of_two_groups(solver, dtype, tolerance):
    rounds = [[[0.5, 0, 0, 1], [0, 1, -1, 0]], [[0.2, 0.1, 0, 0.3], [-0.1, 0.2, 0.4, 0]]]
    directions = [[0.5, 0.5, -0.5, 0.5], [0.223606798, 0.670820393, 0.5, 0.5]]
    models = [[0.75, 0.75, 1.25, 0.75], [0.638196601, 0.414589803, 1.0, 0.5]]
    aggregator, update = oracle.compiled(solver=solver)
    with jax.enable_x64(dtype == "float64"):
        theta, weights = jnp.ones(4, dtype), jnp.full(2, 0.5, dtype)
        state = aggregator.init(oracle.two_groups(theta, 2))
        for updates, wanted, model in zip(rounds, directions, models, strict=True):
            updates = oracle.two_groups(jnp.array(updates, dtype), 2)
            step, state = update(updates, state, weights=weights)
            theta = theta - 0.5 * oracle.flat(step)
            np.testing.assert_allclose(oracle.flat(step), wanted, atol=tolerance)
            np.testing.assert_allclose(theta, model, atol=tolerance)
