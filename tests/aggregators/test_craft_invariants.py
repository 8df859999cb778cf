"""What CRAFT's directions always obey, against an independent pseudo-inverse."""

import craft_oracle as oracle
import numpy as np
import pytest

from fedjax_geo import aggregators, layers

WIDE = [(1, 2, 3), (2, 5, 50), (4, 12, 40)]  # seed, clients, width: full row rank
NARROW = [(5, 12, 8), (6, 20, 3)]

wide = pytest.mark.parametrize(("seed", "m", "width"), WIDE)
any_width = pytest.mark.parametrize(("seed", "m", "width"), WIDE + NARROW)
solvers = pytest.mark.parametrize("solver", oracle.SOLVERS)


def close(found, wanted, tolerance=1e-9):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance)


@any_width
@solvers
def test_direction_is_the_anchored_pseudo_inverse(seed, m, width, solver):
    for again in (0, 100):
        updates, weights, previous = oracle.cohort(seed + again, m, width)
        found = oracle.direction(updates, weights, previous, solver=solver)
        close(found, oracle.craft_direction(updates, weights, previous))


@wide
@solvers
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
def test_every_client_gets_its_share_of_descent(seed, m, width, solver, dtype, tolerance):
    updates, weights, previous = oracle.cohort(seed, m, width)
    step = oracle.direction(updates, weights, previous, solver=solver, dtype=dtype)
    rows, _ = oracle.unit_rows(updates)
    assert np.abs(rows @ step - weights).max() <= tolerance
    assert (updates @ step > 0).all()


@any_width
def test_lengths_do_not_matter(seed, m, width):
    updates, weights, previous = oracle.cohort(seed, m, width)
    step = oracle.direction(updates, weights, previous)
    scales = np.logspace(-6, 6, m)[:, None]
    close(oracle.direction(scales * updates, weights, 1e-3 * previous), step)
    close(oracle.direction(updates, 7 * weights, previous), step)


@any_width
def test_only_what_clients_see_of_the_reference_changes(seed, m, width):
    """g - ghat lies in the row space of U, the rest of g is that of ghat, and the two parts are orthogonal."""
    updates, weights, previous = oracle.cohort(seed, m, width)
    reference = previous / np.linalg.norm(previous)
    rows, _ = oracle.unit_rows(updates)
    unseen = np.eye(width) - np.linalg.pinv(rows) @ rows
    step = oracle.direction(updates, weights, previous)
    anew = oracle.direction(updates, weights)
    close(unseen @ (step - reference), 0)
    close(unseen @ step, unseen @ reference)
    close(unseen @ anew, 0)
    whole = np.linalg.norm(unseen @ reference) ** 2 + np.linalg.norm(np.linalg.pinv(rows) @ weights) ** 2
    close(np.linalg.norm(step) ** 2, whole)
    assert whole <= 1 + np.linalg.norm(anew) ** 2 + 1e-9


@wide
def test_a_feasible_reference_stays(seed, m, width):
    """A unit reference with U ghat = rho: the minimum-norm direction, completed to length one out of sight."""
    updates, weights, other = oracle.cohort(seed, m, width, cosine=0.0)
    seen = oracle.direction(updates, weights)
    rows, _ = oracle.unit_rows(updates)
    unseen = other - np.linalg.pinv(rows) @ (rows @ other)
    feasible = seen + unseen / np.linalg.norm(unseen) * np.sqrt(1 - seen @ seen)
    close(oracle.direction(updates, weights, 3 * feasible), feasible)


@wide
def test_a_reference_out_of_sight_is_added(seed, m, width):
    updates, weights, other = oracle.cohort(seed, m, width)
    rows, _ = oracle.unit_rows(updates)
    unseen = other - np.linalg.pinv(rows) @ (rows @ other)
    unseen /= np.linalg.norm(unseen)
    close(oracle.direction(updates, weights, unseen), unseen + oracle.direction(updates, weights))


@wide
def test_every_other_feasible_direction_is_farther_from_the_reference(seed, m, width):
    updates, weights, previous = oracle.cohort(seed, m, width)
    reference = previous / np.linalg.norm(previous)
    step = oracle.direction(updates, weights, previous)
    rows, _ = oracle.unit_rows(updates)
    for other in np.random.default_rng(seed).normal(size=(20, width)):
        moved = step + (other - np.linalg.pinv(rows) @ (rows @ other))
        close(rows @ moved, weights)
        assert np.linalg.norm(moved - reference) > np.linalg.norm(step - reference)


@any_width
@solvers
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-5)])
def test_the_order_of_clients_does_not_matter(seed, m, width, solver, dtype, tolerance):
    updates, weights, previous = oracle.cohort(seed, m, width)
    order = np.random.default_rng(seed).permutation(m)
    step = oracle.direction(updates, weights, previous, solver=solver, dtype=dtype)
    shuffled = oracle.direction(updates[order], weights[order], previous, solver=solver, dtype=dtype)
    close(shuffled, step, tolerance)


@wide
@solvers
def test_a_client_split_in_two_halves_its_target(seed, m, width, solver):
    """Targets are per client, not per example: the halves do not add up."""
    updates, weights, previous = oracle.cohort(seed, m, width)
    halves = np.concatenate([weights[:1] / 2, weights[:1] / 2, weights[1:]])
    split = oracle.direction(np.concatenate([updates[:1], updates]), halves, previous, solver=solver)
    rows, _ = oracle.unit_rows(updates)
    close(rows @ split, np.concatenate([weights[:1] / 2, weights[1:]]))
    close(split, oracle.craft_direction(np.concatenate([updates[:1], updates]), halves, previous))


@pytest.mark.parametrize(("seed", "m", "width"), [(2, 5, 50), (5, 12, 8)])
@solvers
def test_groups_are_solved_independently(seed, m, width, solver):
    updates, weights, previous = oracle.cohort(seed, m, width)
    cut = width // 2
    split = oracle.direction(
        oracle.two_groups(updates, cut), weights, oracle.two_groups(previous, cut), solver=solver
    )
    parts = [(slice(0, cut)), (slice(cut, None))]
    alone = [oracle.craft_direction(updates[:, part], weights, previous[part]) for part in parts]
    close(oracle.flat(split), np.concatenate(alone))


def test_one_group_over_everything_is_another_method():
    updates, weights, previous = oracle.cohort(2, 5, 50)
    trees = oracle.two_groups(updates, 20), weights, oracle.two_groups(previous, 20)
    whole = oracle.flat(oracle.direction(*trees, layers=layers.model))
    close(whole, oracle.craft_direction(updates, weights, previous))
    assert np.abs(whole - oracle.flat(oracle.direction(*trees))).max() > 0.01


@any_width
@solvers
def test_padding_clients_change_nothing(seed, m, width, solver):
    updates, weights, previous = oracle.cohort(seed, m, width)
    padded, padded_weights = np.zeros((m + 1, width)), np.zeros(m + 1)
    keep = np.sort(np.random.default_rng(seed).permutation(m + 1)[:m])
    padded[keep], padded_weights[keep] = updates, weights
    step = oracle.direction(updates, weights, previous, solver=solver)
    close(oracle.direction(padded, padded_weights, previous, solver=solver), step, 1e-12)


@solvers
def test_orthonormal_updates_are_summed_by_their_weights(solver):
    rows = np.linalg.qr(np.random.default_rng(0).normal(size=(50, 5)))[0].T
    weights = np.array([0.1, 0.2, 0.3, 0.15, 0.25])
    close(oracle.direction(5 * rows, weights, solver=solver), weights @ rows)


@solvers
def test_a_single_client(solver):
    update, weight, previous = oracle.cohort(0, 1, 7)
    unit, reference = update[0] / np.linalg.norm(update), previous / np.linalg.norm(previous)
    close(oracle.direction(update, weight, previous, solver=solver), update[0], 0)
    by_formula = oracle.direction(update, weight, previous, solver=solver, raw_single=False)
    close(by_formula, reference - (unit @ reference) * unit + unit)


def test_without_a_reference_every_round_is_the_first():
    updates, weights, previous = oracle.cohort(2, 5, 50)
    anew = oracle.direction(updates, weights, previous, reference=aggregators.no_reference)
    close(anew, oracle.direction(updates, weights))


def test_the_same_inputs_give_the_same_bits():
    updates, weights, previous = oracle.cohort(2, 5, 50)
    runs = [oracle.direction(updates, weights, previous, dtype="float32") for _ in range(2)]
    np.testing.assert_array_equal(*runs)
