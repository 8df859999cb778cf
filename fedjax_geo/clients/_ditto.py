"""Ditto: a personal model beside the global one.

Li, Hu, Beirami, Smith, 2021, "Ditto: Fair and Robust Federated Learning Through Personalization",
arXiv 2012.04221.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax

from fedjax_geo import _validate, tree
from fedjax_geo.clients._local import Optimizer, local_steps
from fedjax_geo.clients._own import Own, recall, trained, untrained
from fedjax_geo.objective import training_loss
from fedjax_geo.types import Array, Batches, ClientAlgorithm, ClientOutput, Key, PyTree, Task, Variables

FirstModel = Callable[[Variables, Variables], Variables]  # (global model now, initial model) -> personal model


class DittoState(NamedTuple):
    """The personal model v_i, and the state of the global branch."""

    personal: Own
    inner: PyTree


def initial_model(now: Variables, initial: Variables) -> Variables:
    """A client that has never trained has the initial global model, as in the paper."""
    del now
    return initial


def global_model(now: Variables, initial: Variables) -> Variables:
    """A client that has never trained has the global model of the moment."""
    del initial
    return now


def ditto(
    inner: ClientAlgorithm, optimizer: Optimizer, lam: float = 0.1, first: FirstModel = initial_model
) -> ClientAlgorithm:
    """Any client algorithm for the global model, and a personal model that is pulled towards it.

    The global branch is ``inner``, bit for bit. The personal model v_i sees the same batches:
    ``grad F_i(v_i) + lam (v_i - theta_t)``, where theta_t is the received global model. It is what the client
    serves, with statistics of its own.

    Args:
        inner: how the global model is trained.
        optimizer: of the personal steps, as in ``local_sgd``.
        lam: strength of the pull; 0 is training alone.
        first: what a client that has never trained serves, and starts from when its time comes:
            ``initial_model`` or ``global_model``.

    Raises:
        ValueError: if lam is negative or the optimizer's first step is not finite.

    >>> import optax
    >>> from fedjax_geo.clients import local_sgd
    >>> client = ditto(local_sgd(optax.sgd(0.05)), optax.sgd(0.05), lam=0.1)
    """
    by_round = _validate.optimizer("optimizer", optimizer)
    _validate.non_negative("lam", lam)

    def personal_model(variables: Variables, own: Own) -> Variables:
        return recall(own, first(variables, own.model))

    def train(
        task: Task,
        variables: Variables,
        shared: PyTree,
        state: DittoState,
        batches: Batches,
        *,
        round: Array,
        key: Key,
    ) -> ClientOutput:
        out = inner.train(task, variables, shared, state.inner, batches, round=round, key=key)
        start = personal_model(variables, state.personal)
        ahead = tree.subtract(start.params, variables.params)  # v_i - theta_t before the first step

        def pull(gradient: PyTree, update: PyTree) -> PyTree:
            return jax.tree.map(lambda g, a, u: g + lam * (a - u), gradient, ahead, update)

        own = local_steps(training_loss(task), start, batches, by_round(round), key=key, adjust=pull)
        personal = trained(Variables(tree.subtract(start.params, own.update), own.stats))
        return out._replace(
            state=DittoState(personal, out.state), metrics=out.metrics | {"personal_loss": own.loss}
        )

    return inner._replace(
        train=train,
        init=lambda variables: DittoState(untrained(variables), inner.init(variables)),
        share=lambda shared, before, after, n: inner.share(shared, before.inner, after.inner, n),
        personalize=lambda variables, state: personal_model(variables, state.personal),
        complete=lambda variables, state: inner.complete(variables, state.inner),
        adapt=None,  # what is served is the personal model, whatever the inner algorithm would do
    )
