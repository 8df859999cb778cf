"""The geometry of a step, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_geo import layers
from fedjax_geo.aggregators import craft
from fedjax_geo.diagnostics import conflict

M, CUTS = 6, (0, 12, 40)
RNG = np.random.default_rng(0)
UPDATES, STEP, PREVIOUS = RNG.normal(size=(M, 40)), RNG.normal(size=40), RNG.normal(size=40)
WEIGHTS = RNG.dirichlet(np.ones(M))

measure = jax.jit(conflict, static_argnames="layers")


def trees(*flats):
    """Vectors, or rows of them, as two modules."""
    cut = CUTS[1]
    found = [{"a": {"kernel": f[..., :5], "bias": f[..., 5:cut]}, "b": {"kernel": f[..., cut:]}} for f in flats]
    return [jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), each) for each in found]


def measured(step=STEP, updates=UPDATES, weights=WEIGHTS, previous=PREVIOUS, grouping=layers.module):
    step, updates, previous = trees(step, updates, previous)
    found = measure(step, updates, jnp.asarray(weights, jnp.float32), previous, layers=grouping)
    return {name: np.asarray(value).item() for name, value in found.items()}


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def residual(step, updates, weights, groups):
    """Largest ``|alpha U s - rho|``, alpha the best factor of each group by least squares."""
    largest = []
    for start, stop in groups:
        along = unit(updates[:, start:stop]) @ step[start:stop]
        alpha = np.linalg.lstsq(along[:, None], weights, rcond=None)[0][0]
        largest.append(np.abs(alpha * along - weights).max())
    return max(largest)


BY_MODULE, BY_MODEL = [CUTS[:2], CUTS[1:]], [(0, 40)]


@pytest.mark.parametrize(("grouping", "groups"), [(layers.module, BY_MODULE), (layers.model, BY_MODEL)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_number_agrees_with_numpy(grouping, groups, seed):
    rng = np.random.default_rng(seed)
    updates, step, previous = rng.normal(size=(M, 40)), rng.normal(size=40), rng.normal(size=40)
    found = measured(step, updates, WEIGHTS, previous, grouping)
    cosines = unit(updates) @ unit(step)
    wanted = {
        "worst_cosine": cosines.min(),
        "conflict_share": (cosines < 0).mean(),
        "constraint_residual": residual(step, updates, WEIGHTS, groups),
        "previous_cosine": unit(step) @ unit(previous),
    }
    assert found == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("rate", [1.0, 0.1, 3.0])
def test_a_craft_step_meets_its_constraints_at_any_server_rate(rate):
    updates, previous = trees(UPDATES, PREVIOUS)
    link = craft()
    state = link.init(previous)._replace(previous=previous)
    step, _ = jax.jit(link.update)(updates, state, weights=jnp.asarray(WEIGHTS, jnp.float32))
    step = jax.tree.map(lambda leaf: rate * leaf, step)
    found = measure(step, updates, jnp.asarray(WEIGHTS, jnp.float32), previous, layers=layers.module)
    assert found["constraint_residual"] < 1e-5
    assert found["worst_cosine"] > 0
    assert found["conflict_share"] == 0


def test_residual_of_craft_where_clients_contradict_one_another():
    """Three clients in two numbers: ``max |U g - rho|`` of the least-squares answer, .0734."""
    updates = {"w": jnp.array([[1.0, 0], [0, 1], [1, 1]])}
    weights, step = jnp.array([0.2, 0.3, 0.5]), {"w": jnp.array([0.251776695, 0.351776695])}
    found = conflict(jax.tree.map(lambda g: 0.1 * g, step), updates, weights, step, layers.module)
    assert float(found["constraint_residual"]) == pytest.approx(0.5 - 0.426776695, abs=1e-6)


def test_a_step_of_the_mean_can_harm_a_client():
    """Updates (2, 0, 0) and (-1, 1, 0) with a quarter and three: their mean goes against the first."""
    updates, weights = np.zeros((2, 40)), np.array([0.25, 0.75])
    updates[0, 0], updates[1, :2] = 2, (-1, 1)
    step = weights @ updates
    found = measured(step, updates, weights, PREVIOUS, layers.model)
    assert found["worst_cosine"] == pytest.approx(-0.25 / np.linalg.norm(step), abs=1e-6)
    assert found["conflict_share"] == 0.5
    assert found["constraint_residual"] == pytest.approx(residual(step, updates, weights, BY_MODEL), abs=1e-6)


@pytest.mark.parametrize("broken", [np.nan, np.inf, 0.0])
def test_clients_without_a_usable_update_are_left_out(broken):
    updates, rest = UPDATES.copy(), np.arange(M) != 3
    updates[3] = broken
    found = measured(updates=updates)
    shares = WEIGHTS[rest] / WEIGHTS[rest].sum()
    wanted = measured(updates=UPDATES[rest], weights=shares)
    assert found == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("broken", [0.0, np.nan])
@pytest.mark.parametrize("step", [STEP, np.zeros(40)])
def test_nobody_usable_measures_zero(broken, step):
    found = measured(step=step, updates=np.full((M, 40), broken), previous=np.zeros(40))
    assert found == dict.fromkeys(found, 0)


def test_no_step_agrees_with_nobody_and_harms_nobody():
    found = measured(step=np.zeros(40))
    assert found["worst_cosine"] == found["conflict_share"] == found["previous_cosine"] == 0
    assert found["constraint_residual"] == pytest.approx(WEIGHTS.max(), abs=1e-6)


def test_scales_do_not_matter():
    scales = np.logspace(-4, 4, M)[:, None]
    found = measured(1e-3 * STEP, scales * UPDATES, WEIGHTS, 1e3 * PREVIOUS)
    assert found == pytest.approx(measured(), abs=1e-5)
