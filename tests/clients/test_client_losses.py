"""MOON, FedLC and the full-batch gradient: losses against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toys
from client_runs import SMALL, SMALL_TASK, alone, averaged, close, quadratics, rounds, w

from fedjax_geo.batches import Work
from fedjax_geo.clients import class_counts, fedlc, full_batch_gradient, local_sgd, moon
from fedjax_geo.clients._own import trained
from fedjax_geo.objective import cross_entropy
from fedjax_geo.types import Examples, Model, Task, Variables

RNG = np.random.default_rng(0)
X = RNG.normal(size=(7, 6)).astype(np.float32)
Y = np.array([0, 0, 0, 0, 2, 2, 0], np.int32)  # class 1 is absent
ONE_STEP = Work(batch_size=10)


def variables(seed=0):
    return SMALL.init(jax.random.key(seed), jnp.asarray(X))


def numpy_forward(params, x):
    fc1, fc2 = ({k: np.asarray(v, np.float64) for k, v in params[name].items()} for name in ("fc1", "fc2"))
    z = np.maximum(x @ fc1["kernel"] + fc1["bias"], 0)
    return z, z @ fc2["kernel"] + fc2["bias"]


def numpy_cross_entropy(logits, y):
    return np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]


def numpy_gradient(loss, params, name, index, step=1e-6):
    """Central difference of one entry, float64."""

    def shifted(by):
        moved = jax.tree.map(lambda p: np.array(p, np.float64), params)
        moved[name]["kernel"][index] += by
        return loss(moved)

    return (shifted(step) - shifted(-step)) / (2 * step)


def test_the_contrastive_loss_against_numpy():
    """Value of one step's loss, and its gradient where it reaches the features, at mu 5 and tau 0.5."""
    received, previous, current = variables(0), variables(1), variables(0)
    client = moon(optax.sgd(1.0))
    out = alone(client, SMALL_TASK, received, X, Y, state=trained(previous), work=ONE_STEP)

    def loss(params):
        z, logits = numpy_forward(params, X.astype(np.float64))
        z_global, z_previous = (numpy_forward(v.params, X.astype(np.float64))[0] for v in (received, previous))

        def similarity(a, b):
            return (a * b).sum(1) / np.maximum(np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1), 1e-30)

        near, far = np.exp(similarity(z, z_global) / 0.5), np.exp(similarity(z, z_previous) / 0.5)
        return np.mean(numpy_cross_entropy(logits, Y) - 5 * np.log(near / (near + far)))

    assert float(out.metrics["train_loss"]) == pytest.approx(loss(current.params), rel=1e-5)
    for name, index in [("fc1", (2, 1)), ("fc1", (0, 3)), ("fc2", (1, 2))]:
        expected = numpy_gradient(loss, current.params, name, index)
        assert float(out.update[name]["kernel"][index]) == pytest.approx(expected, rel=1e-3, abs=1e-5)
    end = jax.tree.map(lambda p, u: p - u, received.params, out.update)
    close(out.state.model.params, end, rtol=1e-6)
    assert bool(out.state.trained)


def test_the_first_contrast_is_between_equal_models():
    """z_previous = z_global: the loss is log 2 above cross-entropy and the first gradient is that of FedAvg."""
    out, plain = (
        alone(client, SMALL_TASK, variables(), X, Y, work=ONE_STEP)
        for client in (moon(optax.sgd(0.1), mu=2.0), local_sgd(optax.sgd(0.1)))
    )
    assert float(out.metrics["train_loss"] - plain.metrics["train_loss"]) == pytest.approx(2 * np.log(2), rel=1e-5)
    close(out.update, plain.update, rtol=1e-4, atol=1e-7)


def test_features_of_zero_do_no_harm():
    zero = jax.tree.map(jnp.zeros_like, variables())
    out = alone(moon(optax.sgd(0.1)), SMALL_TASK, zero, X, Y, state=trained(variables(1)), work=Work(3, 2))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(out.update))


def test_a_model_without_features_is_refused():
    task = SMALL_TASK._replace(model=SMALL._replace(features=None))
    with pytest.raises(ValueError, match=r"Model\.features"):
        alone(moon(optax.sgd(0.1)), task, variables(), X, Y)


def test_logits_are_calibrated_by_the_client_s_own_counts():
    """Counts (5, 0, 2): margins 5^(-1/4), (1e-8)^(-1/4) = 100, 2^(-1/4)."""
    out = alone(fedlc(optax.sgd(1.0), tau=0.7), SMALL_TASK, variables(), X, Y, work=ONE_STEP)
    margin = 0.7 * np.array([5, 1e-8, 2]) ** -0.25
    assert margin[1] == pytest.approx(70)

    def loss(params):
        return numpy_cross_entropy(numpy_forward(params, X.astype(np.float64))[1] - margin, Y).mean()

    assert float(out.metrics["train_loss"]) == pytest.approx(loss(variables().params), rel=1e-5)
    for name, index in [("fc1", (2, 1)), ("fc2", (1, 2))]:
        expected = numpy_gradient(loss, variables().params, name, index)
        assert float(out.update[name]["kernel"][index]) == pytest.approx(expected, rel=1e-3, abs=1e-5)
    assert np.abs(out.update["fc2"]["kernel"][:, 1]).max() < 1e-20  # the absent class is left alone


def test_counts_ignore_padding():
    from fedjax_geo.batches import serve

    rows = jnp.array([6, 5, 4, 0, 0], jnp.int32)  # of which three are the client's
    batches = serve(Examples(jnp.asarray(X), jnp.asarray(Y)), rows, jnp.int32(3), jax.random.key(0), Work(2))
    assert class_counts(batches, 4).tolist() == [1, 0, 2, 0]


def test_the_full_gradient_does_not_depend_on_batches():
    expected = jax.grad(lambda p: cross_entropy(SMALL.apply(Variables(p), X, train=False, key=None)[0], Y).mean())(
        variables().params
    )
    for work in (Work(3), Work(10, None, 4)):
        out = alone(full_batch_gradient(), SMALL_TASK, variables(), X, Y, work=work)
        close(out.update, expected, rtol=1e-5, atol=1e-7)
        assert int(out.num_steps) == 1
    loss = numpy_cross_entropy(numpy_forward(variables().params, X)[1], Y).mean()
    assert float(out.metrics["train_loss"]) == pytest.approx(loss, rel=1e-5)


def test_gradient_descent_on_the_mean_loss():
    """Two quadratics of curvature 1 and 3 at 2 and -1: gradient -2 and 3, server rate 0.1."""
    method = averaged(full_batch_gradient(), optax.sgd(0.1))
    state, _ = rounds(1, method, toys.quad, quadratics((1.0, 2.0), (3.0, -1.0)))
    assert w(state) == pytest.approx(-0.05, rel=1e-6)


def test_losses_go_to_any_task():
    """FedLC hands calibrated logits to the task's own loss."""
    model = Model(
        lambda key, x: Variables({"w": jnp.zeros((2, 2))}), lambda v, x, **_: (x @ v.params["w"], v.stats)
    )
    task = Task(model, toys.as_stored, lambda logits, y: logits[:, 1] - logits[:, 0])
    out = alone(fedlc(optax.sgd(0.1)), task, model.init(None, None), np.eye(2), [0, 0])
    assert float(out.metrics["train_loss"]) == pytest.approx(2**-0.25 - 100, rel=1e-6)
