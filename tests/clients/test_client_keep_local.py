"""What stays with the client: heads, norm layers, statistics; and how statistics travel otherwise."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toys
from client_runs import CLASSIFY, SMALL, alone, averaged, by_size, close, plain, process, ragged, rounds, same
from flax import nnx

from fedjax_geo import tree
from fedjax_geo.aggregators import weighted_mean
from fedjax_geo.batches import Work
from fedjax_geo.clients import (
    fedbn,
    fedper,
    fedrep,
    keep_local,
    local_sgd,
    module_named,
    norms,
    params_where,
    scaffold,
)
from fedjax_geo.models import from_nnx
from fedjax_geo.objective import cross_entropy
from fedjax_geo.types import Method, Model, Task, Variables, Weighting
from fedjax_geo.weightings import by_examples

SGD = optax.sgd(0.1)


class Normed(nnx.Module):
    def __init__(self, width, rngs):
        self.fc1 = nnx.Linear(width, 4, rngs=rngs)
        self.norm1 = nnx.BatchNorm(4, momentum=0.5, rngs=rngs)
        self.fc2 = nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x, mask=None):
        return self.fc2(nnx.relu(self.norm1(self.fc1(x), mask=None if mask is None else mask[:, None])))


NORMED = from_nnx(lambda shape, rngs: Normed(shape[0], rngs))


def personal(client, state):
    return jax.vmap(client.personalize, (None, 0))(state.variables, state.clients)


# --- selections ----------------------------------------------------------------------------------------------


def test_selections():
    variables = NORMED.init(jax.random.key(0), jnp.ones((2, 6)))
    chosen = norms(variables)
    assert [p for p, c in zip(tree.paths(chosen.params), jax.tree.leaves(chosen.params), strict=True) if c] == [
        "norm1/bias",
        "norm1/scale",
    ]
    assert chosen.stats == {"norm1": {"mean": True, "var": True}}
    head = module_named("fc2")(variables)
    assert sum(jax.tree.leaves(head)) == 2 and head.params["fc2"] == {"bias": True, "kernel": True}
    assert head == params_where(lambda path: path[0] == "fc2")(variables)


@pytest.mark.parametrize("selection", [module_named("fc9"), params_where(lambda path: True)])
def test_a_selection_is_a_part(selection):
    client = keep_local(local_sgd(SGD), selection)
    with pytest.raises(ValueError, match="must select a part"):
        client.init(SMALL.init(jax.random.key(0), jnp.ones((2, 6))))


# --- heads ---------------------------------------------------------------------------------------------------


def test_heads_stay_and_bodies_are_averaged():
    client = fedper(local_sgd(SGD), head="fc2")
    state, step, key, data = process(by_size(client), SMALL, ragged(), **CLASSIFY)
    start = state.variables.params
    before = personal(client, state)
    state, _ = step(state, key, data)
    same(state.variables.params["fc2"], start["fc2"])
    assert np.any(state.variables.params["fc1"]["kernel"] != start["fc1"]["kernel"])
    own = personal(client, state).params
    heads = np.asarray(own["fc2"]["kernel"])
    assert len(np.unique(heads.reshape(8, -1), axis=0)) == 8  # the empty client has the initial one
    np.testing.assert_array_equal(heads[0], before.params["fc2"]["kernel"][0])
    for i in range(8):
        same(own["fc1"]["kernel"][i], state.variables.params["fc1"]["kernel"])

    # the first round trains as FedAvg does, from equal heads
    same(state.variables.params["fc1"], plain()[1].variables.params["fc1"])
    state, _ = step(state, key, data)
    assert step._cache_size() == 1


def test_a_head_is_where_it_was_left():
    """Parameters a and b with losses linear in both: own b moves by rate * gradient, update of b is zero."""
    model = Model(
        lambda key, x: Variables({"a": jnp.zeros(()), "b": jnp.zeros(())}),
        lambda v, x, **_: ((x[:, 0] * v.params["a"] + x[:, 1] * v.params["b"])[:, None], v.stats),
    )
    client = keep_local(scaffold(0.1), params_where(lambda path: path == ("b",)))
    task, variables = Task(model, toys.as_stored, toys.loss_is_output), model.init(None, None)
    state = client.init(variables)._replace(own=(jnp.full((), 5.0),))
    out = alone(client, task, variables, [[1.0, 2.0]], state=state, work=Work(epochs=3))
    assert out.update == {"a": pytest.approx(0.3), "b": 0.0}
    assert float(out.state.own[0]) == pytest.approx(5 - 0.6)
    assert float(out.state.inner["a"]) == pytest.approx(1.0)


def test_losses_and_scores_of_a_round_are_those_of_the_model_that_the_client_has():
    """Loss ``x a + z b`` with b kept, rate 0.1: client i goes to b_i = -0.1 z_i, and the server's b stays at 1."""
    model = Model(
        lambda key, x: Variables({"a": jnp.zeros(()), "b": jnp.ones(())}),
        lambda v, x, **_: ((x[:, 0] * v.params["a"] + x[:, 1] * v.params["b"])[:, None], v.stats),
    )
    weighting = Weighting(
        lambda info, state: (jnp.ones(2), (info.losses, info.reports.score)),
        score=lambda task, variables, *_: variables.params,
        init=lambda n: (jnp.zeros(n), {"a": jnp.zeros(n), "b": jnp.zeros(n)}),
    )
    client = keep_local(local_sgd(SGD), params_where(lambda path: path == ("b",)))
    method = Method(client, weighting, optax.chain(weighted_mean(), optax.sgd(1.0)))
    x, z = np.array([1.0, 3.0]), np.array([-2.0, 5.0])
    state, _ = rounds(2, method, model, toys.federation([[row] for row in np.stack([x, z], 1)]))
    a, b = -0.1 * x.mean(), 1 - 0.1 * z  # after the first round
    losses, trained = state.weighting
    np.testing.assert_allclose(losses, x * a + z * b, rtol=1e-5)
    np.testing.assert_allclose(trained["a"], a - 0.1 * x, rtol=1e-5)
    np.testing.assert_allclose(trained["b"], b - 0.1 * z, rtol=1e-5)


def test_head_first_then_body():
    """Loss a * b * x: the head b moves with a fixed, then a with the new b fixed; checked by a plain loop."""
    model = Model(
        lambda key, x: Variables({"a": jnp.ones(()), "b": jnp.full((), 2.0)}),
        lambda v, x, **_: ((x[:, 0] * v.params["a"] * v.params["b"])[:, None], v.stats),
    )
    client = fedrep(optax.adamw(0.1, weight_decay=0.0), head="b", head_share=10 / 11)
    client_sgd = fedrep(optax.sgd(0.1), head="b", head_share=0.5)
    task, variables = Task(model, toys.as_stored, toys.loss_is_output), model.init(None, None)
    a, b = 1.0, 2.0
    for _ in range(2):
        b -= 0.1 * a * 0.5
    for _ in range(3):  # round(2.5) = 2 steps for the head, 3 for the body
        a -= 0.1 * b * 0.5
    out = alone(client_sgd, task, variables, [[0.5]], work=Work(epochs=5))
    assert float(1 - out.update["a"]) == pytest.approx(a) and float(out.state.own[0]) == pytest.approx(b)
    assert float(out.update["b"]) == 0
    out = alone(client, task, variables, [[0.5]], work=Work(epochs=11))  # Adam goes 0.1 a step
    assert float(out.update["a"]) == pytest.approx(0.1, rel=1e-3)
    assert float(out.state.own[0]) == pytest.approx(1.0, rel=1e-3)
    out = alone(client_sgd, task, variables, [[0.5]])  # a single step is the body's
    assert float(out.update["a"]) == pytest.approx(0.1)
    assert float(out.state.own[0]) == 2.0


# --- statistics ----------------------------------------------------------------------------------------------


def test_statistics_are_averaged_with_the_round_s_weights_and_no_optimizer_sees_them():
    """BatchNorm, server Adam: the model's statistics are the weighted mean of what each client measured."""

    def telling(client):
        def train(*args, **options):
            out = client.train(*args, **options)
            return out._replace(report=out.stats)

        return client._replace(train=train)

    def remember(params):
        return {"norm1": {"mean": jnp.zeros((8, 4)), "var": jnp.zeros((8, 4))}}, jnp.zeros(8)

    keep = optax.GradientTransformationExtraArgs(
        remember, lambda u, s, p=None, *, reports, weights, **_: (u, (reports.client, weights))
    )
    server = optax.chain(keep, weighted_mean(), optax.adam(0.1))
    method = Method(telling(local_sgd(SGD)), by_examples(), server)
    state, step, key, data = process(method, NORMED, ragged(), **CLASSIFY)
    for _ in range(4):
        before = state.variables.stats
        state, _ = step(state, key, data)
        measured, weights = state.server[0]
        expected = jax.tree.map(lambda s, w=weights: np.tensordot(w, s, 1), measured)
        close(state.variables.stats, expected, rtol=1e-5, atol=1e-6)
        assert np.all(state.variables.stats["norm1"]["var"] > 0)
    assert np.any(before["norm1"]["mean"] != state.variables.stats["norm1"]["mean"])
    assert np.std(measured["norm1"]["mean"][1:], axis=0).min() > 0
    assert step._cache_size() == 1


def test_local_statistics_flow_through_the_local_steps():
    """Momentum 0.5, two steps on one full batch, frozen weights: 0.25 of the start, 0.75 of the batch."""
    x = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    variables = NORMED.init(jax.random.key(0), jnp.asarray(x))
    task = Task(NORMED, toys.as_stored, cross_entropy)
    out = alone(local_sgd(optax.sgd(0.0)), task, variables, x, work=Work(10, 2))  # padded to 10
    z = x @ np.asarray(variables.params["fc1"]["kernel"])
    np.testing.assert_allclose(out.stats["norm1"]["mean"], 0.75 * z.mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(out.stats["norm1"]["var"], 0.25 + 0.75 * z.var(0), rtol=1e-4)


def test_local_norms_keep_each_client_s_variance():
    """Clients with variance 1 and 3: averaged they make 2; with FedBN the server keeps its own, clients theirs."""

    def apply(variables, x, *, train, key, mask):
        stats = {"norm": {"var": x[0, 1]}} if train else variables.stats
        params = variables.params
        return (x[:, 0] * params["w"] * params["norm"]["scale"])[:, None], stats

    model = Model(
        lambda key, x: Variables(
            {"w": jnp.ones(()), "norm": {"scale": jnp.ones(())}}, {"norm": {"var": jnp.ones(())}}
        ),
        apply,
    )
    data = toys.federation([np.array([[1.0, 1.0]]), np.array([[-1.0, 3.0]])])
    together, _ = rounds(1, averaged(local_sgd(SGD)), model, data)
    assert float(together.variables.stats["norm"]["var"]) == 2.0
    client = fedbn(local_sgd(SGD))
    state, _ = rounds(1, averaged(client), model, data)
    assert float(state.variables.stats["norm"]["var"]) == 1.0
    assert float(state.variables.params["norm"]["scale"]) == 1.0
    own = personal(client, state)
    assert own.stats["norm"]["var"].tolist() == [1.0, 3.0]
    np.testing.assert_allclose(own.params["norm"]["scale"], [0.9, 1.1], rtol=1e-6)
    assert own.params["w"].tolist() == [1.0, 1.0]
