"""How exactly CRAFT's systems are solved in float32, and what happens near and at singular ones."""

import craft_oracle as oracle
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_geo.aggregators import ridge, spectral

solvers = pytest.mark.parametrize("solver", oracle.SOLVERS)


def errors(updates, weights, previous, solver):
    """float32 against float64 on the same inputs: largest ``|U g - rho|``, relative error of g."""
    updates, previous = (np.float32(array).astype(float) for array in (updates, previous))
    step = oracle.direction(updates, weights, previous, solver=solver, dtype="float32").astype(float)
    wanted = oracle.craft_direction(updates, weights, previous)
    rows, usable = oracle.unit_rows(updates)
    residual = np.abs(rows @ step - oracle.targets(weights, usable)).max()
    return residual, np.linalg.norm(step - wanted) / np.linalg.norm(wanted)


@pytest.mark.parametrize(
    ("width", "cosine", "solver", "residual", "relative"),
    [  # the published float32 errors of a Gram solve, and 4e-5 of a singular value decomposition at 464 and .95
        (464, 0.50, "ridge", 1e-6, 1e-5),
        (464, 0.50, "spectral", 2e-6, 1e-5),
        (464, 0.95, "ridge", 7e-6, 5e-5),
        (464, 0.95, "spectral", 5e-5, 1e-3),
        (9280, 0.50, "ridge", 1e-6, 1e-5),
        (9280, 0.50, "spectral", 2e-6, 1e-5),
        (9280, 0.95, "ridge", 1e-5, 5e-5),
        (9280, 0.95, "spectral", 5e-5, 5e-4),
    ],
)
def test_a_hundred_clients_in_float32(width, cosine, solver, residual, relative):
    found = errors(*oracle.cohort(0, 100, width, cosine), solver)
    assert found[0] <= residual
    assert found[1] <= relative


def test_many_strongly_aligned_clients_in_float32():
    """300 clients of mean cosine .99 in 500 numbers, where the singular values of U span three decades."""
    residual, relative = errors(*oracle.cohort(0, 300, 500, 0.99), "ridge")
    assert residual <= 1e-4  # of targets near 3e-3
    assert relative <= 1e-2


@solvers
@pytest.mark.parametrize(("width", "usable"), [(20, 5), (20, 12), (40, 5)])
@pytest.mark.parametrize("cosine", [0.3, 0.95])
def test_few_usable_clients_in_float32(width, usable, cosine, solver):
    """Fewer usable clients than numbers in the group, and fewer numbers than clients in the cohort."""
    updates, weights, previous = oracle.cohort(usable, 30, width, cosine)
    updates[np.random.default_rng(0).permutation(30)[usable:]] = 0
    residual, relative = errors(updates, weights, previous, solver)
    assert residual <= 1e-5
    assert relative <= 2e-4


@solvers
@pytest.mark.parametrize(
    ("m", "width", "cosine", "tolerance"), [(30, 20, 0.3, 1e-4), (100, 62, 0.95, 1e-2), (100, 10, 0.95, 5e-3)]
)
def test_more_clients_than_numbers_in_float32(m, width, cosine, tolerance, solver):
    assert errors(*oracle.cohort(m, m, width, cosine), solver)[1] <= tolerance


@solvers
def test_one_number_and_many_clients_in_float32(solver):
    """A scalar parameter: the direction is the mean of the signed targets."""
    updates, weights, previous = oracle.cohort(0, 100, 1)
    step = oracle.direction(updates, weights, previous, solver=solver, dtype="float32")
    np.testing.assert_allclose(step, np.mean(np.sign(updates[:, 0]) * weights), atol=1e-4)


# Powers of two below, so that clients stay exactly parallel when they are rounded to float32.


@solvers
@pytest.mark.parametrize("width", [40, 20])
def test_clients_that_agree_exactly_in_float32(width, solver):
    updates, weights, previous = oracle.cohort(3, 30, width, 0.5)
    updates[15:] = 4 * updates[:15]
    assert errors(updates, weights, previous, solver)[1] <= 1e-4


@solvers
def test_opposed_clients_in_float32(solver):
    """Half the cohort wants the opposite of the other half: equal targets cancel to exactly zero."""
    updates, weights, previous = oracle.cohort(3, 8, 40, 0.5)
    updates[4:] = -8 * updates[:4]
    step = oracle.direction(updates, np.full(8, 1 / 8), solver=solver, dtype="float32")
    np.testing.assert_array_equal(step, np.zeros(40))
    assert errors(updates, weights, previous, solver)[1] <= 1e-4


def almost_parallel(angles, solver):
    """Directions ``[angles, 2]`` of two unit clients at these angles with targets .3 and .7."""
    aggregator, _ = oracle.compiled(solver=solver)
    second = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    updates = np.stack([np.broadcast_to([1.0, 0.0], second.shape), second], axis=1)
    state = aggregator.init(jnp.zeros(2))
    step = jax.vmap(lambda u: aggregator.update(u, state, weights=jnp.array([0.3, 0.7]))[0])
    return np.asarray(jax.jit(step)(jnp.asarray(updates, jnp.float32)))


def test_ridge_is_continuous_where_clients_become_parallel():
    """From the exact answer at a wide angle to the mean of the targets at none, without a jump."""
    angles = np.geomspace(1e-6, 0.5, 400)
    smooth = almost_parallel(angles, "ridge")
    assert np.isfinite(smooth).all()
    np.testing.assert_allclose(smooth[0], [0.5, 0], atol=1e-3)
    wanted = [0.3, (0.7 - 0.3 * np.cos(0.5)) / np.sin(0.5)]
    np.testing.assert_allclose(smooth[-1], wanted, rtol=1e-4)
    largest = np.linalg.norm(smooth, axis=1).max()
    assert np.linalg.norm(np.diff(smooth, axis=0), axis=1).max() < 0.1 * largest
    cut = almost_parallel(angles, "spectral")
    jump = np.linalg.norm(np.diff(cut, axis=0), axis=1).max()
    assert jump > 0.4 * np.linalg.norm(cut, axis=1).max()


@pytest.mark.parametrize(("delta", "steps"), [(1e-2, 1), (1e-2, 3), (0.3, 2)])
def test_ridge_filters_eigenvalues_as_it_says(delta, steps):
    values = np.array([1.0, 0.5, 1e-2, 1e-4, 0.0])
    with jax.enable_x64(True):
        solve = ridge(delta, steps)
        found = solve(jnp.diag(jnp.array(values)), jnp.ones(5), jnp.zeros(()))
    kept = 1 - (delta / (values + delta)) ** steps
    wanted = np.divide(kept**2, values, out=np.zeros(5), where=values > 0)
    np.testing.assert_allclose(found, wanted, atol=1e-12)


@pytest.mark.parametrize(
    ("rtol", "cutoff", "kept"),
    [(None, 0.0, 4), (None, 0.05, 3), (0.2, 0.0, 2), (0.0, 0.5, 4)],
)
def test_spectral_keeps_singular_values_above_the_cutoff(rtol, cutoff, kept):
    """Singular values 1, .4, .1, .01 and 1e-9; the last is below what a Gram matrix can tell from rounding."""
    values = np.array([1.0, 0.4, 0.1, 0.01, 1e-9]) ** 2
    with jax.enable_x64(True):
        found = spectral(rtol)(jnp.diag(jnp.array(values)), jnp.ones(5), jnp.asarray(cutoff))
    wanted = np.where(np.arange(5) < kept, 1 / values, 0)
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_spectral_cuts_where_the_authors_do():
    """Clients at an angle below ``max(m, d) eps`` count as one, though the ridge still tells them apart."""
    width = 60_000
    updates = np.zeros((2, width))
    updates[:, 0], updates[1, 1] = 1, 5e-3  # singular values 1.4 and 3.5e-3, cut-off 7e-3 of the first
    kept = np.zeros((2, 60))
    kept[:] = updates[:, :60]
    weights = np.array([0.3, 0.7])
    merged = oracle.direction(updates, weights, solver="spectral", dtype="float32")
    apart = oracle.direction(kept, weights, solver="spectral", dtype="float32")
    assert abs(merged[:2] @ [1, 0] - 0.5) < 0.01
    assert abs(apart[:2] @ [1, 0] - 0.3) < 0.01


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ridge(delta=0.0), "delta must be"),
        (lambda: ridge(delta=float("nan")), "delta must be"),
        (lambda: ridge(steps=0), "steps must be"),
        (lambda: spectral(rtol=-1e-3), "rtol must be"),
        (lambda: spectral(rtol=float("inf")), "rtol must be"),
    ],
)
def test_arguments_out_of_range_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()
