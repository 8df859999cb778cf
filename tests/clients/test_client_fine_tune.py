"""Fine-tuning: every client's model of the moment, after some training of its own, and nothing kept."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toys
from client_runs import averaged, scalar_task

from fedjax_geo import evaluate
from fedjax_geo.batches import Work, serve
from fedjax_geo.clients import fedper, fine_tune, keep_local, local_sgd, module_named, params_where
from fedjax_geo.parallel import Strategy
from fedjax_geo.simulate import simulate
from fedjax_geo.types import Examples, Model, Task, Variables

SGD = optax.sgd(0.1)


def tuned(theta, h, a, rate, steps):
    """Gradient descent on ``h / 2 (w - a)^2`` from theta."""
    return a + (theta - a) * (1 - rate * h) ** steps


def loss(w, h, a):
    return h / 2 * (w - a) ** 2


def test_every_client_is_scored_after_steps_from_the_present_model():
    """Three epochs at the rate of round 1; five examples in batches of two are three steps an epoch."""
    h, a, sizes = np.array([1.0, 2.0, 4.0]), np.array([0.0, 1.0, -1.0]), [5, 1, 0]
    clients = [np.tile([[h[i], a[i]]], (n, 1)) for i, n in enumerate(sizes)]
    data = toys.federation([*clients[:2], np.zeros((0, 2)), [[h[2], a[2]]]], test=[[0], [5, 5], [6], []])
    client = fine_tune(local_sgd(SGD), lambda round: optax.sgd(0.1 * 0.5**round), epochs=3)
    scores = evaluate.score_personal(
        scalar_task(),
        client,
        Variables({"w": jnp.full((), 2.0)}),
        (),
        jax.tree.map(jnp.asarray, data),
        Strategy(chunk=2),
        work=Work(batch_size=2),
        round=1,
    )
    served = tuned(2.0, h, a, 0.05, np.array([9, 3, 0]))  # the one without examples serves the model as it is
    np.testing.assert_allclose(scores.loss, [*(loss(served, h, a) * [1, 2, 1]), 0], rtol=1e-5)


def test_a_run_evaluates_clients_that_it_never_sampled():
    pairs = np.array([[1.0, 1.0], [2.0, -1.0], [0.5, 3.0]])
    method = averaged(fine_tune(local_sgd(SGD), optax.sgd(0.2), epochs=2))
    data = toys.federation([pair[None] for pair in pairs])
    options = {"cohort": 1, "example_loss": toys.loss_is_output, "diagnose": None}
    result = simulate(method, toys.quad, data, rounds=1, **options)
    assert not jax.tree.leaves(result.state.clients)
    for theta, evaluation in zip([0.0, result.state.variables.params["w"]], result.evaluations, strict=True):
        theta = np.asarray(theta, np.float64)
        expected = loss(tuned(theta, *pairs.T, 0.2, 2), *pairs.T).mean()
        assert evaluation.summaries["personal"]["loss"] == pytest.approx(expected, rel=1e-5)
        assert evaluation.summaries["global"]["loss"] == pytest.approx(loss(theta, *pairs.T).mean(), rel=1e-5)


BOTH = Model(  # loss x a + z b
    lambda key, x: Variables({"a": jnp.zeros(()), "b": jnp.zeros(())}),
    lambda v, x, **_: ((x[:, 0] * v.params["a"] + x[:, 1] * v.params["b"])[:, None], v.stats),
)
B = params_where(lambda path: path == ("b",))


@pytest.mark.parametrize(
    ("client", "served"),
    [
        (fine_tune(fedper(local_sgd(SGD), "b"), SGD, 2), (1 - 0.6, 7 + 0.4)),
        (fine_tune(fedper(local_sgd(SGD), "b"), SGD, 2, selection=module_named("b")), (1.0, 7 + 0.4)),
        (keep_local(fine_tune(local_sgd(SGD), SGD, 2), B), (1 - 0.6, 7 + 0.4)),
        (fine_tune(fine_tune(local_sgd(SGD), SGD, 2, selection=B), SGD), (1 - 0.3, 2 + 0.6)),
    ],
    ids=["own head", "only the head", "inside", "twice"],
)
def test_it_starts_from_what_the_client_would_serve(client, served):
    """Received a = 1 and b = 2, kept b = 7; gradients 3 and -2, rate 0.1."""
    received = Variables({"a": jnp.ones(()), "b": jnp.full((), 2.0)})
    state = client.init(received)
    state = state._replace(own=(jnp.full((), 7.0),)) if state else state
    examples = Examples(jnp.array([[3.0, -2.0]]), jnp.zeros(1, jnp.int32))
    batches = serve(examples, jnp.zeros(1, jnp.int32), jnp.int32(1), jax.random.key(1), Work(epochs=5))
    task = Task(BOTH, toys.as_stored, toys.loss_is_output)
    own = client.adapt(task, received, state, batches, round=jnp.int32(0), key=jax.random.key(0))
    assert (float(own.params["a"]), float(own.params["b"])) == pytest.approx(served)


def test_training_is_that_of_the_algorithm_inside():
    inner = fedper(local_sgd(SGD), "b")
    assert fine_tune(inner, SGD)._replace(adapt=None) == inner
    with pytest.raises(ValueError, match="epochs must be"):
        fine_tune(inner, SGD, epochs=0)
