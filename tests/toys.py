"""Small problems with known answers, shared by the tests.

LIN: client loss ``g * w``. QUAD: client loss ``h / 2 (w - a)^2``. An example's input holds what its loss needs,
and the "logits" of the model are the loss itself.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_geo.aggregators import weighted_mean
from fedjax_geo.batches import Work
from fedjax_geo.clients import local_sgd
from fedjax_geo.round import make_round
from fedjax_geo.types import Examples, FederatedData, Method, Model, Split, Task, Variables
from fedjax_geo.weightings import by_examples


def as_stored(x, *, train, key):
    """Inputs as they are."""
    del train, key
    return jnp.asarray(x)


def loss_is_output(outputs, labels):
    """The model computed the loss already."""
    del labels
    return outputs[:, 0]


def scalar_model(loss):
    """A model of one parameter ``w`` (0-d, starts at 0) whose output is ``loss(w, x)``."""

    def init(key, x):
        del key, x
        return Variables({"w": jnp.zeros(())})

    def apply(variables, x, *, train, key, mask):
        del train, key, mask
        return loss(variables.params["w"], x)[:, None], variables.stats

    return Model(init, apply)


lin = scalar_model(lambda w, x: x[:, 0] * w)  # x = (g,)
quad = scalar_model(lambda w, x: x[:, 0] / 2 * (w - x[:, 1]) ** 2)  # x = (h, a)


def split(parts):
    """Index lists as a padded table."""
    capacity = max(1, *map(len, parts))
    table = np.zeros((len(parts), capacity), np.int32)
    for row, part in zip(table, parts, strict=True):
        row[: len(part)] = part
    return Split(table, np.array([len(p) for p in parts], np.int32))


def federation(clients, *, test=None, validation=None, num_classes=2, labels=None):
    """A federation of clients given by their example rows, a list of arrays ``[n_i, ...]``."""
    sizes = [len(c) for c in clients]
    x = np.concatenate([np.asarray(c, np.float32) for c in clients if len(c)])
    y = np.zeros(len(x), np.int32) if labels is None else np.concatenate(labels).astype(np.int32)
    starts = np.cumsum([0, *sizes])
    parts = [np.arange(a, b) for a, b in zip(starts, starts[1:], strict=False)]
    return FederatedData(
        Examples(x, y),
        split(parts),
        split(parts if test is None else test),
        validation,
        num_classes,
        as_stored,
        tuple(map(str, range(len(clients)))),
        "made by a test",
    )


def ragged(seed=0, sizes=(0, 1, 2, 5, 9, 13, 20, 7), features=6, num_classes=3, validation=12):
    """A small classification federation: one client without examples, one with a single example."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(num_classes, features))
    labels = [rng.integers(0, num_classes, n) for n in sizes]
    clients = [
        (centers[y] + rng.normal(size=(len(y), features)) + 0.3 * i).astype(np.float32)
        for i, y in enumerate(labels)
    ]
    vy = rng.integers(0, num_classes, validation)
    vx = (centers[vy] + rng.normal(size=(validation, features))).astype(np.float32)
    return federation(
        clients, labels=labels, num_classes=num_classes, validation=Examples(vx, vy.astype(np.int32))
    )


def run(
    method, model, data, *, rounds=1, cohort=None, seed=0, work=Work(), example_loss=loss_is_output, **options
):
    """Rounds by plain calls of the jitted step -> (state, list of metrics)."""
    cohort = data.num_clients if cohort is None else cohort
    options = {"diagnose": None} | options  # less to compile
    process = make_round(method, Task(model, data.prepare, example_loss), cohort=cohort, work=work, **options)
    key = jax.random.key(seed)
    data = jax.tree.map(jnp.asarray, data)
    state = process.init(key, data)  # not jitted: its few operations are shared by all tests
    step = jax.jit(process.step)
    history = []
    for _ in range(rounds):
        state, metrics = step(state, key, data)
        history.append(jax.device_get(metrics))
    return state, history


def averaging(client=None, weighting=None, *after, lr=0.1):
    """FedAvg, with parts replaced."""
    client = local_sgd(optax.sgd(lr)) if client is None else client
    weighting = by_examples() if weighting is None else weighting
    return Method(client, weighting, optax.chain(weighted_mean(), *(after or (optax.sgd(1.0),))))
