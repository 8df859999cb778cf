"""Every recipe runs, on one device and on four, and the same seed gives the same bits."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toys
from registry import short_shuffle as short_shuffle

from fedjax_geo import Method, Strategy, methods, parallel
from fedjax_geo.data import load_federated, server_holdout
from fedjax_geo.models import mlp
from fedjax_geo.objective import cross_entropy, mean_gradient
from fedjax_geo.round import make_round
from fedjax_geo.types import Task

DATA = load_federated("digits_forms", validation=server_holdout(0.1))
TASK = Task(mlp(10, hidden=(16,)), DATA.prepare, cross_entropy)
LAYOUTS = {1: Strategy, 4: lambda: Strategy(mesh=parallel.clients_mesh(4))}


@functools.cache
def compiled(name, devices):
    """(initial state, step, key, data) of a recipe with its defaults, 7 of 14 clients a round."""
    strategy = LAYOUTS[devices]()
    method = methods.find(name)()
    process = make_round(method, TASK, cohort=7, strategy=strategy, diagnose=None)
    data, key = parallel.replicate((DATA, jax.random.key(0)), strategy)
    state = process.init(jax.random.key(0), DATA)  # not jitted: the recipes share its few operations
    return parallel.replicate(state, strategy), jax.jit(process.step), key, data


def five_rounds(name, devices):
    state, step, key, data = compiled(name, devices)
    for _ in range(5):
        state, metrics = step(state, key, data)
    assert step._cache_size() == 1, "one trace for all rounds"
    return jax.device_get(state), jax.device_get(metrics)


@pytest.mark.parametrize("devices", LAYOUTS)
@pytest.mark.parametrize("name", methods.METHODS)
def test_five_rounds_are_finite_and_reproducible(name, devices):
    state, metrics = five_rounds(name, devices)
    assert int(state.round) == 5 and not metrics["skipped"]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state, metrics)))
    moved = compiled(name, devices)[0].variables.params["fc1"]["kernel"] - state.variables.params["fc1"]["kernel"]
    assert np.abs(moved).max() > 1e-5
    again, metrics_again = five_rounds(name, devices)
    jax.tree.map(np.testing.assert_array_equal, (state, metrics), (again, metrics_again))


@pytest.mark.parametrize("name", methods.METHODS)
def test_recipes_build_with_their_defaults_and_refuse_nonsense(name):
    recipe = methods.find(name)
    assert recipe.__doc__ and isinstance(recipe(), Method)
    assert {"lr", "server_lr", "decay"} <= set(inspect.signature(recipe).parameters)
    with pytest.raises(ValueError, match="lr must be a finite number above 0, got nan"):
        recipe(lr=float("nan"))
    with pytest.raises(ValueError, match="server_lr must be a finite number above 0, got -1"):
        recipe(server_lr=-1.0)


def after_one_round(name):
    state, step, key, data = compiled(name, 1)
    return jax.device_get(step(state, key, data)[0].variables.params)


def test_the_global_model_of_ditto_is_that_of_fedavg_bit_for_bit():
    """Other ideas switched off are FedAvg too: ``clients/test_client_promises.py``."""
    jax.tree.map(np.testing.assert_array_equal, after_one_round("ditto"), after_one_round("fedavg"))


def test_methods_with_one_seed_see_the_same_cohorts():
    def cohorts(name):
        method = methods.find(name)()
        seen = optax.GradientTransformationExtraArgs(
            lambda params: jnp.zeros(7, jnp.int32),
            lambda u, s, p=None, *, client_ids, **_: (jax.tree.map(lambda x: x[0], u), client_ids),
        )
        data = toys.federation([[[1.0, 1.0]]] * 14)
        state, _ = toys.run(method._replace(server=seen), toys.quad, data, cohort=7)
        return np.asarray(state.server)

    np.testing.assert_array_equal(cohorts("fedavg"), cohorts("ditto"))


def test_fedvg_by_tensor_and_by_block():
    """The scores of one model are the norms of its validation gradient, taken again in NumPy."""
    key = jax.random.key(0)
    model = TASK.model.init(key, DATA.examples.x[:1])
    validation = jax.tree.map(jnp.asarray, DATA.validation)
    gradient = mean_gradient(TASK, model, validation, batch_size=100, train=False, key=key)
    gradient = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), gradient)
    l1 = jax.tree.map(lambda g: np.abs(g).sum(), gradient)
    largest = jax.tree.map(lambda g: np.linalg.norm(g, 2), gradient)  # singular value, or length of a bias
    blocks = {name: dict.fromkeys(leaves, sum(leaves.values())) for name, leaves in l1.items()}
    for method, norms in [
        (methods.fedvg_layerwise(), l1),
        (methods.fedvg_layerwise(spectral=True), largest),
        (methods.fedvg_blockwise(), blocks),
    ]:
        score = method.weighting.score(TASK, model, None, validation, key)
        jax.tree.map(lambda ours, norm: np.testing.assert_allclose(ours, norm, rtol=1e-5), score, norms)


def test_unknown_methods_get_a_hint():
    with pytest.raises(ValueError, match="unknown method 'fedavgm2', did you mean 'fedavgm'"):
        methods.find("fedavgm2")
