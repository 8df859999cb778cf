"""The mean of the updates taken while clients train: the same as from all updates, in the memory of a chunk."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toys
from registry import short_shuffle as short_shuffle

from fedjax_geo import layers, parallel
from fedjax_geo.aggregators import averaged, craft, weighted_mean
from fedjax_geo.batches import Work, fitted
from fedjax_geo.clients import fedprox, local_sgd, scaffold
from fedjax_geo.models import cnn, mlp
from fedjax_geo.objective import cross_entropy, training_loss
from fedjax_geo.parallel import Strategy, clients_mesh
from fedjax_geo.round import make_round
from fedjax_geo.types import Batch, MeanServer, Method, Task
from fedjax_geo.weightings import by_examples, by_validation_loss, fedvg, separable, tilted, uniform

DATA = toys.ragged()  # eight clients, one of them empty
SGD = optax.sgd(0.1)
METHODS = {
    "examples": (local_sgd(SGD), by_examples()),
    "uniform, with state": (scaffold(0.1), uniform()),
    "validation loss": (fedprox(SGD, 0.1), by_validation_loss()),
    "fedvg by leaf": (local_sgd(SGD), fedvg(layers=layers.leaf)),
}
LAYOUTS = {
    "whole": Strategy,
    "chunk 3": lambda: Strategy(3),
    "one at a time, halved": lambda: Strategy(1, halvings=2),
    "3 devices": lambda: Strategy(2, clients_mesh(3)),
}


def two_rounds(method, strategy=None, data=DATA):
    strategy = strategy or Strategy()
    task = Task(mlp(3, hidden=(5,)), data.prepare, cross_entropy)
    process = make_round(method, task, cohort=6, work=Work(4), strategy=strategy, diagnose=None)
    data, key = parallel.replicate((data, jax.random.key(1)), strategy)
    state = parallel.replicate(process.init(key, data), strategy)
    step = jax.jit(process.step)
    for _ in range(2):
        state, metrics = step(state, key, data)
    return jax.device_get((state.variables, state.server, state.clients, metrics))


@functools.cache
def from_all_updates(name):
    """A chain that is not known to need the mean only."""
    return two_rounds(Method(*METHODS[name], optax.chain(weighted_mean(), optax.sgd(1.0, momentum=0.9))))


@pytest.mark.parametrize(
    ("name", "layout"),
    [("examples", layout) for layout in LAYOUTS] + [(name, "chunk 3") for name in METHODS if name != "examples"],
)
def test_the_same_as_from_all_updates(name, layout):
    method = Method(*METHODS[name], averaged(optax.sgd(1.0, momentum=0.9)))
    found, expected = two_rounds(method, LAYOUTS[layout]()), from_all_updates(name)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, atol=2e-6, rtol=2e-5)


def test_nobody_who_counts_changes_nothing():
    data = toys.federation([np.full((2, 1), np.nan), np.zeros((0, 1))])
    method = Method(local_sgd(SGD), by_examples(), averaged(optax.sgd(1.0, momentum=0.9)))
    state, history = toys.run(method, toys.lin, data)
    assert history[0]["skipped"] and history[0]["nonfinite_clients"] == 1
    assert all(float(leaf) == 0 for leaf in jax.tree.leaves((state.variables, state.server)))


def test_by_hand():
    """LIN with gradients 1 and 4, three and one examples: .1 (3 x 1 + 1 x 4) / 4; a broken client is out."""
    data = toys.federation([np.full((3, 1), 1.0), np.full((1, 1), 4.0), np.full((9, 1), np.inf)])
    state, _ = toys.run(Method(local_sgd(SGD), by_examples(), averaged(optax.sgd(1.0))), toys.lin, data)
    assert float(state.variables.params["w"]) == pytest.approx(-0.175, abs=1e-7)


@pytest.mark.parametrize(("server", "factor"), [(averaged(optax.sgd(1.0)), 1.5), (optax.chain(craft()), 4)])
def test_memory_follows_the_chunk(server, factor):
    """From 8 to 64 clients a round: the same but for small things; in proportion where all updates are needed."""
    data = toys.ragged(sizes=(3,) * 64)

    def workspace(cohort):
        task = Task(mlp(3, hidden=(50, 50)), data.prepare, cross_entropy)
        method = Method(local_sgd(SGD), by_examples(), server)
        process = make_round(method, task, cohort=cohort, work=Work(4), strategy=Strategy(1), diagnose=None)
        key = jax.random.key(0)
        state = jax.eval_shape(process.init, key, data)
        return jax.jit(process.step).lower(state, key, data).compile().memory_analysis().temp_size_in_bytes

    small, large = workspace(8), workspace(64)
    assert (large < factor * small) == isinstance(server, MeanServer)


def test_sums_of_short_weights_are_wide():
    """600 weights of 57 are 34,200; added one by one in bfloat16 they stop at 16,384."""
    data = toys.federation([np.ones((1, 1))] * 600)
    weighting = separable(lambda size, loss, score: jnp.bfloat16(57))
    method = Method(local_sgd(SGD), weighting, averaged(optax.sgd(1.0)))
    state, _ = toys.run(method, toys.lin, data, strategy=Strategy(1))
    assert float(state.variables.params["w"]) == pytest.approx(-0.1, rel=1e-5)


def test_halvings_leave_dropout_and_convolutions_as_they_are():
    """A batch of 3 images in the place of 8, by the CNN: the same loss and gradient."""
    model, key = cnn(3), jax.random.key(0)
    batch = Batch(jax.random.normal(key, (8, 16, 16, 1)), jnp.arange(8) % 3, jnp.arange(8) < 3)
    start = model.init(key, batch.x)
    loss = training_loss(Task(model, toys.as_stored, cross_entropy))

    def differentiate(params, batch):
        return jax.value_and_grad(lambda p: loss(start._replace(params=p), batch, key)[0])(params)

    found, expected = (
        jax.jit(fitted, static_argnums=(0, 3))(differentiate, start.params, batch, s) for s in ((4,), ())
    )
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_who_can_be_streamed():
    assert isinstance(averaged(), MeanServer) and not isinstance(
        optax.chain(averaged(), optax.sgd(1.0)), MeanServer
    )
    assert tilted(1.0).alone is None and fedvg(floor=0.1).alone is None


def test_halvings_are_refused_side_by_side():
    with pytest.raises(ValueError, match=r"halvings must be 0, or positive .* got halvings 1 and chunk None"):
        parallel.check(Strategy(halvings=1))
    assert Strategy(1, halvings=9).short_batches(5) == (1, 2, 3)
