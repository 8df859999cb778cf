"""Helpers of the client tests: small models, one client alone, many rounds of one compiled step."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import toys

from fedjax_geo.aggregators import weighted_mean
from fedjax_geo.batches import Work, serve
from fedjax_geo.clients import local_sgd
from fedjax_geo.models import mlp
from fedjax_geo.objective import cross_entropy
from fedjax_geo.round import make_round
from fedjax_geo.types import Examples, Method, Model, Task, Variables
from fedjax_geo.weightings import by_examples, uniform

SMALL = mlp(3, hidden=(5,))
SMALL_TASK = Task(SMALL, toys.as_stored, cross_entropy)


def vector_model(start):
    """Loss ``<x, w>`` of a vector parameter: its gradient is the example itself."""

    def init(key, x):
        del key, x
        return Variables({"w": jnp.asarray(start, jnp.float32)})

    def apply(variables, x, *, train, key, mask):
        del train, key, mask
        return (x @ variables.params["w"])[:, None], variables.stats

    return Model(init, apply)


def scalar_task(model=toys.quad):
    return Task(model, toys.as_stored, toys.loss_is_output)


def alone(client, task, variables, x, y=None, *, state=None, shared=None, work=Work(), round=0, seed=0):
    """One client's training without a round, jitted."""
    x = jnp.asarray(x, jnp.float32)
    y = jnp.zeros(len(x), jnp.int32) if y is None else jnp.asarray(y, jnp.int32)
    state = client.init(variables) if state is None else state
    shared = client.init_shared(variables.params) if shared is None else shared

    @jax.jit
    def train(variables, shared, state, examples, key):
        rows = jnp.arange(len(examples.y), dtype=jnp.int32)
        batches = serve(examples, rows, jnp.int32(len(examples.y)), jax.random.fold_in(key, 7), work)
        return client.train(task, variables, shared, state, batches, round=jnp.int32(round), key=key)

    return train(variables, shared, state, Examples(x, y), jax.random.key(seed))


def process(method, model, data, *, cohort=None, work=Work(), example_loss=toys.loss_is_output, **options):
    """``(first state, jitted step, key, data)`` of a federated process."""
    cohort = data.num_clients if cohort is None else cohort
    task = Task(model, data.prepare, example_loss)
    made = make_round(method, task, cohort=cohort, work=work, diagnose=None, **options)
    data, key = jax.tree.map(jnp.asarray, data), jax.random.key(0)
    return jax.jit(made.init)(key, data), jax.jit(made.step), key, data


def rounds(count, method, model, data, **options):
    """Rounds of a process -> (state, metrics of every round); one trace is part of the promise."""
    state, step, key, data = process(method, model, data, **options)
    history = []
    for _ in range(count):
        state, metrics = step(state, key, data)
        history.append(jax.device_get(metrics))
    assert step._cache_size() == 1
    return state, history


def averaged(client, *after):
    return Method(client, uniform(), optax.chain(weighted_mean(), *(after or (optax.sgd(1.0),))))


def by_size(client):
    return Method(client, by_examples(), optax.chain(weighted_mean(), optax.sgd(1.0)))


@functools.cache
def ragged():
    return toys.ragged()


@functools.cache
def plain():
    """Reference: FedAvg on the ragged federation, the states before and after each of two rounds."""
    state, step, key, data = process(by_size(local_sgd(optax.sgd(0.1))), SMALL, ragged(), **CLASSIFY)
    states = [state]
    for _ in range(2):
        states.append(step(states[-1], key, data)[0])
    return states


CLASSIFY = {"example_loss": cross_entropy, "work": Work(batch_size=4, epochs=2)}


def remember(count, *names):
    """A server link that keeps entries of the round's vocabulary, ``[names, m]``, and lets the updates pass."""
    return optax.GradientTransformationExtraArgs(
        lambda params: jnp.zeros((len(names), count)),
        lambda updates, state, params=None, **info: (
            updates,
            jnp.stack([info[name].astype(jnp.float32) for name in names]),
        ),
    )


def w(state):
    return float(state.variables.params["w"])


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def close(a, b, **tolerance):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **tolerance), a, b)


def quadratics(*pairs):
    """One client with one example for each ``(h, a)``, loss ``h / 2 (w - a)^2``."""
    return toys.federation([np.array([pair]) for pair in pairs])


# Optimum (1 * 0 + 9 * 10) / (1 + 9) = 9. With K = 10 local steps of 0.1, client i goes the share
# s_i = 1 - (1 - 0.1 h_i)^10 of its way: 0.6513 and 1 - 1e-10. FedAvg stops where s_1 (w - 0) = s_2 (10 - w),
# at 10 / 1.6513 = 6.0558.
TWO = quadratics((1.0, 0.0), (9.0, 10.0))
TEN_STEPS = Work(batch_size=1, epochs=None, steps=10)
DRIFTED, OPTIMUM = 10 / (2 - 0.9**10), 9.0
