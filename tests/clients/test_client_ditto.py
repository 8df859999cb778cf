"""Ditto: the global branch is untouched, the personal one is its own."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toys
from client_runs import CLASSIFY, SMALL, alone, averaged, process, quadratics, ragged, rounds, same, scalar_task, w

from fedjax_geo.batches import Work
from fedjax_geo.clients import ditto, fine_tune, global_model, local_sgd, scaffold
from fedjax_geo.clients._own import trained
from fedjax_geo.simulate import simulate
from fedjax_geo.types import Variables

SGD = optax.sgd(0.1)


def personal(client, state):
    return jax.vmap(client.personalize, (None, 0))(state.variables, state.clients)


def test_one_step_by_hand():
    """v = 1, w = 0, gradient 2, lambda 0.5, rate 0.1: v becomes 1 - 0.1 (2 + 0.5) = 0.75."""
    client = ditto(local_sgd(SGD), SGD, lam=0.5)
    start = Variables({"w": jnp.zeros(())})
    state = client.init(start)._replace(personal=trained(Variables({"w": jnp.ones(())})))
    out = alone(client, scalar_task(toys.lin), start, [[2.0]], state=state)
    assert float(out.state.personal.model.params["w"]) == pytest.approx(0.75, rel=1e-6)
    assert float(out.update["w"]) == pytest.approx(0.2, rel=1e-6)


@pytest.mark.parametrize("lam", [0.4, 0.0], ids=["pulled", "alone"])
def test_rounds_against_numpy(lam):
    pairs, eta = [(1.0, 1.0), (2.0, -3.0)], 0.1
    theta, v = 0.0, np.zeros(2)
    for _ in range(3):
        ends = np.full(2, theta)
        for i, (h, a) in enumerate(pairs):
            for _ in range(4):
                v[i] -= eta * (h * (v[i] - a) + lam * (v[i] - theta))
                ends[i] -= eta * h * (ends[i] - a)
        theta = ends.mean()
    client = ditto(local_sgd(SGD), SGD, lam)
    state, _ = rounds(3, averaged(client), toys.quad, quadratics(*pairs), work=Work(epochs=4))
    assert w(state) == pytest.approx(theta, rel=1e-5)
    np.testing.assert_allclose(personal(client, state).params["w"], v, rtol=1e-5)


def test_around_scaffold_the_global_model_is_scaffold_alone():
    inner = rounds(3, averaged(scaffold(0.1)), SMALL, ragged(), cohort=5, **CLASSIFY)[0]
    outer, _ = rounds(3, averaged(ditto(scaffold(0.1), SGD, 1.0)), SMALL, ragged(), cohort=5, **CLASSIFY)
    same(outer.variables, inner.variables)
    same(outer.clients.inner, inner.clients)
    same(outer.shared, inner.shared)


def test_the_losses_of_a_round_are_those_of_the_global_branch_and_the_model_served_is_the_personal_one():
    client = ditto(fine_tune(local_sgd(SGD), SGD), SGD)
    received = Variables({"w": jnp.full((), 5.0)})
    state = client.init(received)._replace(personal=trained(Variables({"w": jnp.ones(())})))
    assert client.complete(received, state) is received
    assert client.adapt is None and float(client.personalize(received, state).params["w"]) == 1.0


def test_who_never_trained_has_the_initial_or_the_global_model():
    data = quadratics((1.0, 1.0), (1.0, 2.0), (1.0, 3.0), (1.0, 4.0))
    initial, moving = (ditto(local_sgd(SGD), SGD, 0.1, *first) for first in [(), (global_model,)])
    state, step, key, data = process(averaged(initial), toys.quad, data, cohort=2)
    state, _ = step(state, key, data)
    fresh = ~np.asarray(state.clients.personal.trained)
    assert fresh.sum() == 2 and w(state) != 0
    assert np.all(np.asarray(personal(initial, state).params["w"])[fresh] == 0)
    served = np.asarray(personal(moving, state).params["w"])
    assert np.all(served[fresh] == w(state)) and np.all(served[~fresh] != w(state))

    # and it is where training starts: rate 0.1 from the received 5 towards 1
    start, received = moving.init(Variables({"w": jnp.zeros(())})), Variables({"w": jnp.full((), 5.0)})
    out = alone(moving, scalar_task(), received, [[1.0, 1.0]], state=start)
    assert float(out.state.personal.model.params["w"]) == pytest.approx(4.6)


def test_personal_and_global_models_are_scored_by_their_names():
    method = averaged(ditto(local_sgd(optax.sgd(0.02)), optax.sgd(0.5), lam=0.01))
    result = simulate(
        method, SMALL, ragged(), rounds=4, cohort=8, eval_every=4, work=Work(batch_size=4), diagnose=None
    )
    first, last = result.evaluations
    assert first.summaries["personal"] == pytest.approx(first.summaries["global"])
    assert last.summaries["personal"]["loss"] < last.summaries["global"]["loss"]


def test_arguments():
    for make, message in [
        (lambda: ditto(local_sgd(SGD), SGD, lam=-1.0), "lam must be"),
        (lambda: ditto(local_sgd(SGD), optax.sgd(float("nan"))), "check its learning rate"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()
