"""What every weighting by losses or scores keeps in a whole round."""

import fedvg_setup as setup
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toys

from fedjax_geo.batches import Work
from fedjax_geo.clients import local_sgd
from fedjax_geo.round import make_round
from fedjax_geo.types import Examples, Task
from fedjax_geo.weightings import (
    afl,
    by_examples,
    by_validation_accuracy,
    by_validation_loss,
    fedvg,
    mix,
    tilted,
    uniform,
)

ALL = {
    "afl": lambda: afl(0.1),
    "tilted": lambda: tilted(2.0),
    "accuracy": by_validation_accuracy,
    "loss": by_validation_loss,
}
EACH = pytest.mark.parametrize("name", ALL)
VALIDATION = Examples(-np.ones((2, 1), np.float32), np.zeros(2, np.int32))


def leaves(state):
    return [np.asarray(leaf) for leaf in jax.tree.leaves((state.variables, state.weighting))]


def test_one_trace_and_seeds_side_by_side():
    """All of them in one mixture; QUAD, with the validation set at the mean of the clients' minima."""
    rows = [np.array([[1.0, a]] * n) for a, n in ((0.0, 0), (-1.0, 3), (1.0, 2), (3.0, 5))]
    validation = Examples(np.array([[1.0, 1.0]], np.float32), np.zeros(1, np.int32))
    data = jax.tree.map(jnp.asarray, toys.federation(rows, validation=validation))
    method = toys.averaging(weighting=mix(*(weighting() for weighting in ALL.values())))
    task = Task(toys.quad, data.prepare, toys.loss_is_output)
    process = make_round(method, task, cohort=2, work=Work(batch_size=4), diagnose=None)
    step, keys = jax.jit(process.step), jax.random.split(jax.random.key(0), 2)
    side_by_side = jax.jit(jax.vmap(process.step, (0, 0, None)))
    ends = many = jax.jit(jax.vmap(process.init, (0, None)))(keys, data)
    ends = [jax.tree.map(lambda leaf, i=i: leaf[i], ends) for i in range(2)]
    for _ in range(3):
        ends = [step(state, key, data)[0] for state, key in zip(ends, keys, strict=True)]
        many, _ = side_by_side(many, keys, data)
    assert step._cache_size() == side_by_side._cache_size() == 1
    for i, end in enumerate(ends):
        assert all(np.isfinite(leaf).all() for leaf in leaves(end))
        for one, stacked in zip(leaves(end), leaves(many), strict=True):
            np.testing.assert_allclose(stacked[i], one, atol=1e-5)


@EACH
def test_a_client_whose_model_breaks_does_not_count(name):
    data = toys.federation([np.full((2, 1), g) for g in (1.0, np.nan, 3.0)], validation=VALIDATION)
    client = local_sgd(optax.sgd(0.1))
    state, _ = toys.run(toys.averaging(client, ALL[name]()), toys.lin, data, diagnose=None)
    assert -0.3 <= float(state.variables.params["w"]) <= -0.1
    assert all(np.isfinite(leaf).all() for leaf in leaves(state))


@EACH
def test_a_cohort_that_does_not_answer_changes_nothing(name):
    base = local_sgd(optax.sgd(0.1))
    silent = base._replace(train=lambda *a, **k: base.train(*a, **k)._replace(answered=jnp.zeros((), bool)))
    data = toys.federation([np.full((2, 1), g) for g in (1.0, 2.0)], validation=VALIDATION)
    weighting = ALL[name]()
    state, history = toys.run(toys.averaging(silent, weighting), toys.lin, data, rounds=2, diagnose=None)
    assert float(state.variables.params["w"]) == 0.0 and int(state.round) == 2
    assert all(m["skipped"] for m in history)
    for found, start in zip(jax.tree.leaves(state.weighting), jax.tree.leaves(weighting.init(2)), strict=True):
        np.testing.assert_array_equal(found, start)


@pytest.mark.parametrize("weighting", [by_examples(), uniform(), fedvg(), by_validation_loss()])
def test_alone_is_what_the_cohort_says_up_to_a_factor(weighting):
    score = jnp.array([1.0, jnp.nan, 2.5])  # ignored by those that do not look
    info = setup.info(score, num_examples=[4, 0, 7])
    together, _ = weighting.weigh(info, ())
    each = jax.vmap(weighting.alone)(info.num_examples, info.losses, score)
    np.testing.assert_allclose(together[2] / together[0], each[2] / each[0], rtol=1e-6)
