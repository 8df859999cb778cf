"""Shortest vectors in convex hulls, against SciPy and against the duality gap."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize, nnls

from fedjax_geo.aggregators._simplex_qp import shortest_in_hull


def rows_of(kind, m, d, rng):
    """Unit rows of a kind of difficulty."""
    rows = rng.normal(size=(m, d))
    if kind == "similar":
        rows = 0.1 * rows + rng.normal(size=d)
    if kind == "opposed":
        rows = np.concatenate([rows[: (m + 1) // 2], -rows[: m // 2]])
    if kind == "camps":
        rows = np.sign(rows[:, :1]) * rng.normal(size=d) + 0.3 * rows
    if kind == "repeated":
        rows = rows[np.arange(m) // 4]
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


KINDS = ["random", "similar", "opposed", "camps", "repeated"]
SIZES = [(1, 3), (2, 3), (3, 2), (10, 3), (20, 20), (40, 5), (100, 1000)]
solve = jax.jit(shortest_in_hull)
solve_box = jax.jit(
    lambda gram, usable, center, radius: shortest_in_hull(gram, usable, center=center, radius=radius)
)


def padded(a, fill=0.0):
    """A vector or square matrix filled up to the largest size, so that all sizes share one compiled program."""
    room = 100 - len(a)
    return np.pad(np.asarray(a, float), [(0, room)] * np.ndim(a), constant_values=fill)


def coefficients(rows, dtype, *box):
    """The solver's answer for rows in a larger Gram matrix full of rows that are not usable."""
    with jax.enable_x64(dtype == np.float64):
        gram = jnp.asarray(padded(rows @ rows.T, np.nan), dtype)
        usable = jnp.arange(100) < len(rows)
        if box:
            x = solve_box(gram, usable, jnp.asarray(padded(box[0]), dtype), jnp.asarray(box[1], dtype))
        else:
            x = solve(gram, usable)
        x = np.asarray(x)
    assert x.dtype == dtype and np.all(x[len(rows) :] == 0)
    return x[: len(rows)].astype(np.float64)


def oracle(rows):
    """The shortest vector by non-negative least squares: min ||V^T y||^2 + (1 - sum y)^2 has it up to scale."""
    m, d = rows.shape
    y, _ = nnls(np.vstack([rows.T, np.ones(m)]), np.append(np.zeros(d), 1.0), maxiter=100 * m)
    return rows.T @ (y / y.sum())


def gap(gram, x, lower, upper):
    """Frank-Wolfe gap: no feasible point has an objective lower by more than twice this."""
    slope = gram @ x
    best, left = lower.copy(), 1 - lower.sum()
    for i in np.argsort(slope):
        best[i] += min(upper[i] - lower[i], left)
        left -= best[i] - lower[i]
    return slope @ (x - best)


@pytest.mark.parametrize("kind", KINDS)
def test_simplex_against_nnls(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    for m, d in SIZES:
        rows = rows_of(kind, m, d, rng)
        x = coefficients(rows, np.float64)
        assert np.all(x >= 0) and abs(x.sum() - 1) < 1e-12
        assert gap(rows @ rows.T, x, np.zeros(m), np.ones(m)) < 1e-14
        np.testing.assert_allclose(rows.T @ x, oracle(rows), atol=1e-8)

        short = rows.astype(np.float32)
        x, short = coefficients(short, np.float32), short.astype(np.float64)
        assert gap(short @ short.T, x, np.zeros(m), np.ones(m)) < 1e-6
        hard = kind in ("similar", "opposed")  # nearly equal rows, or a shortest vector of zero
        assert np.linalg.norm(short.T @ x - oracle(short)) < (3e-4 if hard else 1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("concentration", [1.0, 0.1])
def test_box_by_its_duality_gap(kind, concentration):
    rng = np.random.default_rng(10 + KINDS.index(kind))
    for m, d in SIZES[1:]:
        rows = rows_of(kind, m, d, rng)
        center = rng.dirichlet(np.full(m, concentration)) + 1e-12
        center /= center.sum()
        for radius in (1e-3, 0.01, 0.1, 0.7):
            lower, upper = np.maximum(center - radius, 0), center + radius
            for dtype, limit in ((np.float64, 1e-14), (np.float32, 1e-6)):
                x = coefficients(rows, dtype, center, radius)
                assert abs(x.sum() - 1) < 1e-6
                assert np.all(x >= lower - 1e-6) and np.all(x <= upper + 1e-6)
                assert gap(rows @ rows.T, x, lower, upper) < limit


def test_box_against_slsqp():
    rng = np.random.default_rng(1)
    for m, d in [(2, 3), (4, 3), (6, 30), (8, 4)]:
        rows = rows_of("random", m, d, rng)
        gram, center = rows @ rows.T, rng.dirichlet(np.ones(m))
        bounds = [(max(c - 0.1, 0), min(c + 0.1, 1)) for c in center]
        answer = minimize(
            lambda x, g=gram: x @ g @ x,
            center,
            jac=lambda x, g=gram: 2 * g @ x,
            bounds=bounds,
            constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
            options={"ftol": 1e-15, "maxiter": 500},
        ).x
        x = coefficients(rows, np.float64, center, 0.1)
        assert x @ gram @ x <= answer @ gram @ answer + 1e-12
        np.testing.assert_allclose(rows.T @ x, rows.T @ answer, atol=1e-5)


def test_without_a_usable_row_or_a_length_nothing_breaks():
    assert np.all(np.asarray(solve(jnp.full((100, 100), jnp.nan), jnp.zeros(100, bool))) == 0)
    np.testing.assert_allclose(jnp.sum(solve(jnp.zeros((100, 100)), jnp.ones(100, bool))), 1, rtol=1e-5)


def test_a_batch_of_layers_equals_each_alone_and_scale_is_immaterial():
    rng = np.random.default_rng(3)
    rows = jnp.asarray(np.stack([rows_of(kind, 7, 9, rng) for kind in KINDS]), jnp.float32)
    grams = jnp.einsum("qmd,qnd->qmn", rows, rows)
    usable = jnp.asarray(rng.random((5, 7)) < 0.8)
    batched = jax.jit(jax.vmap(shortest_in_hull))
    scale = 10.0 ** jnp.arange(-12, 13, 6)[:, None, None]
    shortest = [jnp.einsum("qm,qmd->qd", batched(g, usable), rows) for g in (grams, grams * scale)]
    alone = [
        coefficients(r[u].astype(np.float64), np.float64) @ r[u]
        for r, u in zip(np.asarray(rows), np.asarray(usable), strict=True)
    ]
    for found in shortest:
        np.testing.assert_allclose(found, np.stack(alone), atol=3e-4)
