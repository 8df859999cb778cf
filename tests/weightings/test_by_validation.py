"""Weights by accuracy and by loss on the server's validation set."""

import dataclasses

import fedvg_setup as setup
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toys

from fedjax_geo import tree
from fedjax_geo.models import mlp
from fedjax_geo.objective import cross_entropy
from fedjax_geo.round import make_round
from fedjax_geo.types import Examples, Task, Variables
from fedjax_geo.weightings import by_examples, by_validation_accuracy, by_validation_loss, mix

EITHER = pytest.mark.parametrize("weighting", [by_validation_accuracy, by_validation_loss])
TASK = setup.linear_task(noise=10.0)  # noise in training only


def score(weighting, w, examples=setup.VALIDATION, key=setup.KEY):
    variables = Variables({"W": jnp.asarray(w, jnp.float32)})
    return weighting.score(TASK, variables, None, examples, key)


def normalized(weighting, scores, num_examples=None):
    given = setup.info(jnp.asarray(scores, jnp.float32), num_examples)
    return tree.normalize(weighting.weigh(given, ())[0], given.num_examples > 0)


def test_scores_by_hand():
    """Inputs (1,0), (0,1), (1,1) of classes 0, 1, 0."""
    assert score(by_validation_accuracy(), np.eye(2)) == 1.0  # a tie goes to the first class
    assert score(by_validation_accuracy(), [[0, 0], [1, 1]]) == pytest.approx(1 / 3)
    found = score(by_validation_loss(), np.eye(2))
    assert found == pytest.approx((2 * np.log(1 + np.exp(-1)) + np.log(2)) / 3, rel=1e-6)


@EITHER
@pytest.mark.parametrize("batch_size", [1, 4, 10, 64])
def test_batches_do_not_change_a_score(weighting, batch_size):
    examples = setup.random_examples(10)
    w = np.random.default_rng(1).normal(size=(3, 4))
    whole = score(weighting(10), w, examples)
    np.testing.assert_allclose(score(weighting(batch_size), w, examples), whole, rtol=1e-6)
    other_key = jax.random.key(9)
    np.testing.assert_allclose(score(weighting(batch_size), w, examples, other_key), whole, rtol=1e-6)


def test_weights_by_accuracy_are_in_proportion():
    np.testing.assert_allclose(normalized(by_validation_accuracy(), [0.5, 0.25, 0.25]), [0.5, 0.25, 0.25])
    np.testing.assert_allclose(normalized(by_validation_accuracy(), [0.9, 0.0, 0.6]), [0.6, 0, 0.4], rtol=1e-6)


def test_weights_by_loss_are_inverse():
    np.testing.assert_allclose(normalized(by_validation_loss(), [1, 2, 4]), np.array([4, 2, 1]) / 7, rtol=1e-6)
    np.testing.assert_allclose(normalized(by_validation_loss(), [0, 1]), [1, 0], atol=1e-7)
    np.testing.assert_allclose(normalized(by_validation_loss(eps=1.0), [0, 1]), [2 / 3, 1 / 3], rtol=1e-6)
    np.testing.assert_allclose(normalized(by_validation_loss(eps=1.0), [-5, 1]), [2 / 3, 1 / 3], rtol=1e-6)


def test_where_nobody_is_right_everyone_counts_the_same():
    found = normalized(by_validation_accuracy(), [0, 0, np.nan, 0], [3, 1, 1, 0])
    np.testing.assert_array_equal(found, [0.5, 0.5, 0, 0])


@EITHER
def test_broken_models_and_empty_clients_get_nothing(weighting):
    found = normalized(weighting(), [0.5, np.nan, 0.5, 0.5], [1, 1, 0, 1])
    np.testing.assert_array_equal(found, [0.5, 0, 0, 0.5])
    np.testing.assert_array_equal(normalized(weighting(), [0.5, np.nan], [0, 1]), [0, 0])  # nobody


@EITHER
def test_a_broken_model_has_no_score(weighting):
    assert np.isnan(score(weighting(), [[np.nan, 0], [0, 1]]))


def test_the_mixture_with_the_weighting_by_examples():
    """What the authors of FedVG call fedacc is a mean of both."""
    weighting = mix(by_validation_accuracy(), by_examples())
    given = setup.info((jnp.array([0.75, 0.25]), ()), [10, 30])
    np.testing.assert_allclose(weighting.weigh(given, ((), ()))[0], [0.5, 0.5], rtol=1e-6)
    assert weighting.needs_server_data


@EITHER
def test_rounds_equal_the_mean_of_the_scored_models(weighting):
    """The server's model is the mean of the clients' by their scores, computed from each client alone."""
    data = toys.ragged(sizes=(4, 6, 5))
    model, key = mlp(3, hidden=()), jax.random.key(0)
    task = Task(model, data.prepare, cross_entropy)
    process = make_round(toys.averaging(weighting=weighting()), task, cohort=3, diagnose=None)
    state, step = process.init(key, data), jax.jit(process.step)

    def trained(which):
        sizes = np.array([data.train.sizes[i] if i in which else 0 for i in range(3)], np.int32)
        only = dataclasses.replace(data, train=data.train._replace(sizes=sizes))
        return step(state, key, jax.tree.map(jnp.asarray, only))[0].variables

    def value(variables):
        logits, _ = model.apply(variables, jnp.asarray(data.validation.x), train=False, key=setup.KEY, mask=None)
        if weighting is by_validation_loss:
            return 1 / float(cross_entropy(logits, data.validation.y).mean())
        return float(np.mean(np.argmax(logits, 1) == data.validation.y))

    alone = [trained({i}) for i in range(3)]
    values = np.array([value(v) for v in alone])
    together = trained({0, 1, 2})
    assert np.ptp(values) > 0
    for leaf, *rows in zip(*map(jax.tree.leaves, (together, *alone)), strict=True):
        np.testing.assert_allclose(leaf, np.tensordot(values / values.sum(), np.stack(rows), 1), atol=1e-5)


@EITHER
def test_it_needs_a_validation_set(weighting):
    assert weighting().needs_server_data
    for nothing in (None, Examples(jnp.zeros((0, 2)), jnp.zeros(0, jnp.int32))):
        with pytest.raises(ValueError, match="need server data"):
            score(weighting(), np.eye(2), nothing)
    with pytest.raises(ValueError, match="batch_size must be"):
        weighting(0)
    with pytest.raises(ValueError, match="eps must be"):
        by_validation_loss(eps=0)
