"""One run, many layouts: vmap, chunks and several devices give the same parameters, for ragged clients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toys

from fedjax_geo import parallel
from fedjax_geo.aggregators import craft, weighted_mean
from fedjax_geo.batches import Work
from fedjax_geo.clients import local_sgd
from fedjax_geo.models import mlp
from fedjax_geo.objective import cross_entropy
from fedjax_geo.parallel import Strategy, clients_mesh
from fedjax_geo.round import make_round
from fedjax_geo.types import Method, Task
from fedjax_geo.weightings import by_examples, fedvg

LAYOUTS = {
    "chunk 1": lambda: Strategy(chunk=1),
    "chunk 3": lambda: Strategy(chunk=3),
    "chunk 7": lambda: Strategy(chunk=7),
    "4 devices": lambda: Strategy(mesh=clients_mesh(4)),
    "4 devices, chunk 1": lambda: Strategy(chunk=1, mesh=clients_mesh(4)),
    "3 devices, uneven": lambda: Strategy(chunk=2, mesh=clients_mesh(3)),
}
CLIENT = local_sgd(optax.sgd(0.1))
METHODS = {
    "fedavg": Method(CLIENT, by_examples(), optax.chain(weighted_mean(), optax.sgd(1.0))),
    "fedvg": Method(CLIENT, fedvg(), optax.chain(weighted_mean(), optax.sgd(1.0))),
    "craft": Method(CLIENT, by_examples(), optax.chain(craft(), optax.sgd(0.5))),
}
DATA = toys.ragged()
SMALL = mlp(3, hidden=(5,))
DOUBLE = SMALL._replace(
    init=lambda key, x: jax.tree.map(lambda p: p.astype(jnp.float64), SMALL.init(key, x.astype(jnp.float32)))
)


@functools.cache
def trajectory(method, layout=None, double=False):
    """Flat parameters after each of five rounds of all 8 clients (one empty, one with a single example)."""
    strategy = Strategy() if layout is None else LAYOUTS[layout]()
    with jax.enable_x64(double):
        task = Task(DOUBLE if double else SMALL, DATA.prepare, cross_entropy)
        work = Work(batch_size=4, epochs=2)
        process = make_round(METHODS[method], task, cohort=8, work=work, strategy=strategy)
        data, key = parallel.replicate((DATA, jax.random.key(1)), strategy)
        state = parallel.replicate(jax.jit(process.init)(key, data), strategy)
        step = jax.jit(process.step)
        rounds = []
        for _ in range(5):
            state, _ = step(state, key, data)
            rounds.append(np.concatenate([np.ravel(p) for p in jax.tree.leaves(state.variables.params)]))
    assert step._cache_size() == 1
    return rounds


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("method", ["fedavg", "fedvg"])
def test_five_rounds_agree_in_single_precision(method, layout):
    np.testing.assert_allclose(trajectory(method, layout)[-1], trajectory(method)[-1], atol=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_craft_aggregation_agrees_in_single_precision(layout):
    np.testing.assert_allclose(trajectory("craft", layout)[0], trajectory("craft")[0], atol=1e-4)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_five_rounds_of_craft_agree_in_double_precision(layout):
    expected = trajectory("craft", double=True)[-1]
    assert expected.dtype == np.float64
    np.testing.assert_allclose(trajectory("craft", layout, double=True)[-1], expected, atol=1e-8)


def test_the_runs_do_move():
    for method in METHODS:
        assert np.abs(trajectory(method)[-1] - trajectory(method)[0]).max() > 1e-2


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_arranging_deals_equal_work_to_every_device(devices):
    lengths = np.random.default_rng(0).integers(0, 100, 12)
    strategy = Strategy(mesh=clients_mesh(devices)) if devices > 1 else Strategy()
    order = np.asarray(parallel.arrange(jnp.asarray(lengths), strategy))
    assert sorted(order) == list(range(12))
    work = lengths[order].reshape(devices, -1)
    assert np.all(np.diff(work, axis=1) <= 0)  # each device starts with its longest
    assert np.ptp(work.sum(axis=1)) <= lengths.max()


def test_mapping_pads_and_cuts():
    x = jnp.arange(5.0)
    for strategy in (
        Strategy(),
        Strategy(chunk=2),
        Strategy(chunk=1),
        Strategy(chunk=9),
        Strategy(2, clients_mesh(4)),
    ):
        out = parallel.map_clients(lambda a, b: a * b, x, jnp.float32(2), strategy)
        np.testing.assert_array_equal(out, 2 * x)


def test_wrong_layouts_are_refused():
    with pytest.raises(ValueError, match=r"chunk must be at least 1 or None, got 0"):
        parallel.check(Strategy(chunk=0))
    with pytest.raises(ValueError, match="between 1 and the 4 that exist, got 5"):
        clients_mesh(5)
    with pytest.raises(ValueError, match="one axis 'clients'"):
        parallel.check(Strategy(mesh=jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))))
