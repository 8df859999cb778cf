"""What every client algorithm and every weighting of the registries promises in a whole round.

The aggregators' promises are in ``aggregators/test_aggregator_promises.py``.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toys
from flax import nnx
from registry import build
from registry import short_shuffle as short_shuffle

from fedjax_geo.aggregators import weighted_mean
from fedjax_geo.batches import Work
from fedjax_geo.clients import CLIENTS, local_sgd
from fedjax_geo.models import from_nnx
from fedjax_geo.objective import cross_entropy
from fedjax_geo.parallel import Strategy
from fedjax_geo.round import make_round
from fedjax_geo.types import Method, Task
from fedjax_geo.weightings import WEIGHTINGS, by_examples


class Small(nnx.Module):
    """An MLP with a norm, so that every algorithm finds what it looks for."""

    def __init__(self, features, *, rngs):
        self.fc1 = nnx.Linear(features, 5, rngs=rngs)
        self.norm1 = nnx.LayerNorm(5, rngs=rngs)
        self.fc2 = nnx.Linear(5, 3, rngs=rngs)

    def features(self, x):
        return nnx.relu(self.norm1(self.fc1(x)))

    def __call__(self, x):
        return self.fc2(self.features(x))


DATA = jax.tree.map(jnp.asarray, toys.ragged())
TASK = Task(
    from_nnx(lambda shape, rngs: Small(shape[0], rngs=rngs), features="features"), DATA.prepare, cross_entropy
)
SERVER = optax.chain(weighted_mean(), optax.sgd(1.0))
METHODS = {
    **{f"client {name}": Method(build(entry), by_examples(), SERVER) for name, entry in CLIENTS.items()},
    **{
        f"weighting {name}": Method(local_sgd(optax.sgd(0.1)), build(entry), SERVER)
        for name, entry in WEIGHTINGS.items()
    },
}
EMPTY = 0  # the client of toys.ragged() that has no examples


def types(tree):
    return jax.tree.map(lambda x: (x.shape, x.dtype, getattr(x, "weak_type", False)), tree)


@functools.cache
def three_rounds(name):
    """(state before, state after, metrics of each round); all 8 clients take part."""
    process = make_round(METHODS[name], TASK, cohort=8, work=Work(batch_size=4, epochs=2), diagnose=None)
    key = jax.random.key(0)
    start = state = process.init(key, DATA)
    step, metrics = jax.jit(process.step), []
    for _ in range(3):
        state, more = step(state, key, DATA)
        metrics.append(jax.device_get(more))
    assert step._cache_size() == 1
    return start, state, metrics


every = pytest.mark.parametrize("name", METHODS)


@every
def test_three_rounds_of_one_trace_keep_types_and_stay_finite(name):
    start, state, metrics = three_rounds(name)
    assert types(state) == types(start)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state, metrics)))
    dropped = name == "client dropout"
    assert dropped or not any(m["skipped"] for m in metrics)
    before, after = (np.asarray(s.variables.params["fc1"]["kernel"]) for s in (start, state))
    assert np.abs(before - after).max() > 1e-4


@every
def test_a_client_without_examples_keeps_its_state_and_counts_nothing(name):
    start, state, metrics = three_rounds(name)
    for before, after in zip(jax.tree.leaves(start.clients), jax.tree.leaves(state.clients), strict=True):
        np.testing.assert_array_equal(before[EMPTY], after[EMPTY])
    assert all(m["max_weight"] <= 1 + 1e-6 for m in metrics)


@pytest.mark.slow
@every
def test_layouts_and_seeds_as_an_axis_agree_with_one_plain_run(name):
    key = jax.random.key(0)
    _, plain, _ = three_rounds(name)
    for strategy in (Strategy(), Strategy(chunk=3)):
        process = make_round(METHODS[name], TASK, cohort=8, work=Work(batch_size=4, epochs=2), strategy=strategy)
        keys = jnp.stack([key, jax.random.key(1)])
        many = jax.jit(jax.vmap(process.init, (0, None)))(keys, DATA)
        step = jax.jit(jax.vmap(process.step, (0, 0, None)))
        for _ in range(3):
            many, _ = step(many, keys, DATA)
        for a, b in zip(jax.tree.leaves(many.variables), jax.tree.leaves(plain.variables), strict=True):
            np.testing.assert_allclose(a[0], b, atol=1e-4, rtol=1e-3)
