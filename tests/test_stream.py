"""Populations in host memory: the runs of populations on the device, from the rows that they need."""

import dataclasses
import functools
import importlib

import jax
import numpy as np
import pytest
import toys
from registry import short_shuffle as short_shuffle

from experiments.settings import Config, prepare_devices
from fedjax_geo import Strategy, Work, checkpoint, make_round, methods, simulate
from fedjax_geo.models import mlp
from fedjax_geo.objective import cross_entropy
from fedjax_geo.parallel import clients_mesh
from fedjax_geo.types import Examples, Task

DATA = toys.ragged()
MODEL = mlp(3, hidden=(5,))
OPTIONS = {"cohort": 5, "eval_every": 3, "work": Work(batch_size=4)}  # five of eight: cohorts overlap


def same(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def run(name, **options):
    return simulate(methods.find(name)(), MODEL, DATA, **{"rounds": 5, **OPTIONS, **options})


@functools.cache
def on_device(name):
    return run(name)


@pytest.mark.parametrize("name", ["scaffold", "ditto"])
def test_the_same_bits_and_one_trace(name, monkeypatch):
    traces, told = [], []
    apply = MODEL.apply

    def counted(*args, **options):
        traces.append(0)
        return apply(*args, **options)

    expected = on_device(name)
    monkeypatch.setitem(globals(), "MODEL", MODEL._replace(apply=counted))
    found = run(name, stream=True, callbacks=[lambda event: told.append(len(traces))])
    same(found.state, expected.state)
    assert found.metrics == expected.metrics
    assert str(found.evaluations) == str(expected.evaluations)  # of the client without examples it is NaN
    assert told[0] < told[1] == told[2]
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(found.state.clients))


def test_devices_that_share_the_cohort():
    found = run("scaffold", stream=True, strategy=Strategy(mesh=clients_mesh(3)))
    for a, b in zip(jax.tree.leaves(found.state), jax.tree.leaves(on_device("scaffold").state), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_a_run_goes_on_from_either_place(tmp_path):
    middle = run("scaffold", rounds=3, stream=True, callbacks=[checkpoint.checkpoints(tmp_path, seed=0)]).state
    before = jax.device_get(jax.tree.map(np.array, middle))
    restored = checkpoint.restore(tmp_path, middle, seed=0)
    for state, stream in ((jax.device_put(restored), True), (middle, False)):
        same(run("scaffold", state=state, stream=stream).state, on_device("scaffold").state)
    same(middle, before)
    with pytest.raises(ValueError, match=r"state does not fit .*clients"):
        run("ditto", state=middle, stream=True)


def test_evaluation_in_parts_and_groups():
    """1513 examples are two parts of two passes; four clients are two groups of three, the last one filled up."""
    data = toys.ragged(sizes=(600, 0, 13, 900), validation=0)
    options = {"rounds": 0, "cohort": 3, "work": Work(batch_size=100)}
    parts, whole = (simulate(methods.finetune(), MODEL, data, stream=s, **options) for s in (True, False))
    assert str(parts.evaluations) == str(whole.evaluations) and "personal" in parts.evaluations[0].summaries


class Recorded:
    """An array that can be asked for some rows and remembers which."""

    def __init__(self, array):
        self.array, self.shape, self.dtype, self.reads = array, array.shape, array.dtype, []

    def __getitem__(self, rows):
        self.reads.append(np.arange(len(self.array))[rows])
        return self.array[rows]


def test_rows_that_are_not_needed_are_not_read_and_the_next_cohort_is_read_ahead(tmp_path):
    rng = np.random.default_rng(0)
    x = np.memmap(tmp_path / "x", np.float32, "w+", shape=(3000, 64))
    x[:] = rng.normal(size=x.shape)
    x = np.memmap(tmp_path / "x", np.float32, "r", shape=x.shape)
    parts = np.split(np.arange(2900), 58)
    train = toys.split(parts)
    examples = Examples(Recorded(x), rng.integers(0, 3, 3000).astype(np.int32))
    test = toys.split([[2900 + i] for i in range(58)])
    data = dataclasses.replace(DATA, examples=examples, train=train, test=test, validation=None)

    told, live = [], lambda: sum(a.nbytes for a in jax.live_arrays())
    before = live()
    fedavg = functools.partial(simulate, methods.fedavg(), MODEL, rounds=4, cohort=2, eval_every=2, diagnose=None)
    callback = lambda event: told.append((len(examples.x.reads), live() - before))  # noqa: E731
    found = fedavg(data, stream=True, callbacks=[callback])
    same(found.state, fedavg(dataclasses.replace(data, examples=examples._replace(x=x))).state)

    numbers, memory = zip(*told, strict=True)
    assert numbers == (2, 6, 8)  # initial model, test; rounds 1, 2 and 3, test; round 4, test
    assert max(memory) < x.nbytes / 5
    draw = make_round(methods.fedavg(), Task(MODEL, DATA.prepare, cross_entropy), cohort=2).draw
    drawn = [train.indices[np.asarray(draw(t, jax.random.key(0), train.sizes))] for t in range(4)]
    for found, expected in zip([examples.x.reads[i] for i in (2, 3, 4, 6)], drawn, strict=True):
        np.testing.assert_array_equal(found, np.sort(expected, axis=None))
    assert all(set(examples.x.reads[i]) == set(range(2900, 2958)) for i in (1, 5, 7))


def test_what_cannot_be_streamed_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="leave out auto or stream"):
        prepare_devices(Config(auto=True, stream=True))
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(ValueError, match="stream must be False in a run of several processes"):
        run("fedavg", stream=True)


def test_a_population_without_memory_is_told_of_streaming(monkeypatch):
    def full(*args):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes.")

    module = importlib.import_module("fedjax_geo.simulate")
    monkeypatch.setattr(module.evaluate, "flatten", full)
    with pytest.raises(MemoryError, match=r"the population does not .*stream=True"):
        run("fedavg")


def test_nobody_has_test_examples():
    data = dataclasses.replace(DATA, test=toys.split([[]] * DATA.num_clients))
    found, expected = (
        simulate(methods.fedavg(), MODEL, data, rounds=1, **OPTIONS, stream=stream) for stream in (True, False)
    )
    assert str(found.evaluations) == str(expected.evaluations)
