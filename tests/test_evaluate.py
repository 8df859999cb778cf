"""Per-client scores and the numbers of a fairness table."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toys

from fedjax_geo import evaluate
from fedjax_geo.models import mlp
from fedjax_geo.objective import cross_entropy
from fedjax_geo.parallel import Strategy
from fedjax_geo.types import ClientAlgorithm, Task, Variables

MODEL = mlp(3, hidden=(5,))
DATA = jax.tree.map(jnp.asarray, toys.ragged())
TASK = Task(MODEL, DATA.prepare, cross_entropy)
VARIABLES = MODEL.init(jax.random.key(0), DATA.examples.x[:1])


def logits(variables, x):
    """The model in NumPy, float64."""
    p = jax.tree.map(lambda a: np.asarray(a, np.float64), variables.params)
    hidden = np.maximum(x @ p["fc1"]["kernel"] + p["fc1"]["bias"], 0)
    return hidden @ p["fc2"]["kernel"] + p["fc2"]["bias"]


def expected(variables_of, split=DATA.test):
    correct, loss = [], []
    for i, (row, size) in enumerate(zip(np.asarray(split.indices), np.asarray(split.sizes), strict=True)):
        x, y = np.asarray(DATA.examples.x)[row[:size]], np.asarray(DATA.examples.y)[row[:size]]
        z = logits(variables_of(i), x)
        correct.append((z.argmax(1) == y).sum())
        loss.append((np.log(np.exp(z).sum(1)) - z[np.arange(size), y]).sum())
    return np.array(correct), np.array(loss)


@pytest.mark.parametrize("batch_size", [1, 7, 500])
def test_the_global_model_on_every_client(batch_size):
    split = evaluate.flatten(DATA.test)
    scores = jax.jit(evaluate.score_global, static_argnums=(0, 4), static_argnames="batch_size")(
        TASK, VARIABLES, DATA.examples, split, DATA.num_clients, batch_size=batch_size
    )
    correct, loss = expected(lambda i: VARIABLES)
    np.testing.assert_array_equal(scores.correct, correct)
    np.testing.assert_allclose(scores.loss, loss, rtol=1e-5)
    np.testing.assert_array_equal(scores.size, DATA.test.sizes)


def test_personal_models_are_each_scored_on_their_own_client():
    shifts = jnp.arange(8.0)

    def personalize(variables, state):
        return Variables(
            jax.tree.map(
                lambda p: p + 0.1 * state * jnp.sin(jnp.arange(p.size)).reshape(p.shape), variables.params
            )
        )

    client = ClientAlgorithm(train=None, personalize=personalize)
    scores = evaluate.score_personal(TASK, client, VARIABLES, shifts, DATA, Strategy(chunk=3), batch_size=4)
    correct, loss = expected(lambda i: personalize(VARIABLES, shifts[i]))
    np.testing.assert_array_equal(scores.correct, correct)
    np.testing.assert_allclose(scores.loss, loss, rtol=1e-5)
    assert not np.array_equal(correct, expected(lambda i: VARIABLES)[0])


def scores(correct, size):
    return evaluate.ClientScores(np.array(correct), np.zeros(len(size)), np.array(size))


def test_client_mean_and_example_mean_are_told_apart():
    summary = evaluate.summarize(scores([1.0, 0.0], [1.0, 99.0]))
    assert summary["client_mean"] == 0.5 and summary["example_mean"] == 0.01


def test_fairness_statistics_leave_clients_without_test_examples_out():
    summary = evaluate.summarize(scores([0.0, 1.0, 2.0, 0.0], [2.0, 2.0, 2.0, 0.0]))
    assert summary["std"] == pytest.approx(np.sqrt(1 / 6))  # population: .4082
    assert (summary["worst"], summary["best"], summary["clients"]) == (0.0, 1.0, 3)
    assert summary["jain"] == pytest.approx(0.6)


def test_tails_are_the_mean_of_a_tenth_of_the_clients():
    summary = evaluate.summarize(scores(np.arange(25.0), np.full(25, 100.0)))
    assert summary["worst10"] == pytest.approx((0 + 0.01) / 2)  # floor(2.5) = 2 clients
    assert summary["best10"] == pytest.approx((0.24 + 0.23) / 2)
    assert evaluate.summarize(scores([1.0, 3.0], [4.0, 4.0]))["worst10"] == 0.25  # at least one


def test_the_noise_floor_is_the_std_of_an_equally_good_model():
    rng = np.random.default_rng(0)
    size = rng.integers(4, 28, 3000).astype(float)
    summary = evaluate.summarize(scores(rng.binomial(size.astype(int), 0.8).astype(float), size))
    assert summary["noise_floor"] == pytest.approx(np.sqrt(0.16 * (1 / size).mean()), rel=0.02)
    assert summary["std"] == pytest.approx(summary["noise_floor"], rel=0.03)


def test_nobody_to_test():
    nothing = evaluate.summarize(scores([0.0, 0.0], [0.0, 0.0]))
    assert nothing["clients"] == 0 and np.isnan(nothing["client_mean"]) and np.isnan(nothing["loss"])
    assert set(nothing) == set(evaluate.summarize(scores([1.0], [2.0])))
    empty = toys.split([[], []])
    got = evaluate.score_global(TASK, VARIABLES, DATA.examples, evaluate.flatten(empty), 2)
    assert np.asarray(got.size).tolist() == [0.0, 0.0]


def test_all_wrong_is_even():
    assert evaluate.summarize(scores([0.0, 0.0], [3.0, 4.0]))["jain"] == 1.0
