"""Parts of the model that never leave the client: personal layers and local normalisation.

FedPer: Arivazhagan, Aggarwal, Singh, Choudhary, 2019, "Federated Learning with Personalization Layers",
arXiv 1912.00818. FedBN: Li, Jiang, Zhang, Kamp, Dou, 2021, "FedBN: Federated Learning on Non-IID Features via
Local Batch Normalization", arXiv 2102.07623.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_geo import layers, tree
from fedjax_geo.types import Array, Batches, ClientAlgorithm, ClientOutput, Key, PyTree, Task, Variables

Selection = Callable[[Variables], Variables]  # variables -> bools like them, True for what stays with the client


class KeptState(NamedTuple):
    """The client's own leaves in flattening order, and the state of the algorithm inside."""

    own: tuple[Array, ...]
    inner: PyTree


def params_where(predicate: Callable[[layers.Path], bool]) -> Selection:
    """Selects parameters by their path, a tuple of names, and no statistics.

    >>> selection = params_where(lambda path: path[0] == "fc")
    >>> selection(Variables({"fc": {"bias": 0.0}, "conv": {"bias": 0.0}})).params
    {'conv': {'bias': False}, 'fc': {'bias': True}}
    """

    def select(variables: Variables) -> Variables:
        labels = layers.by_path(lambda path: "own" if predicate(path) else "shared")(variables.params)
        return Variables(
            jax.tree.map(lambda label: label == "own", labels), jax.tree.map(lambda _: False, variables.stats)
        )

    return select


def module_named(name: str) -> Selection:
    """Selects the parameters of one module, such as ``"fc3"`` or ``"encoder/norm"``."""
    prefix = tuple(name.split("/"))
    return params_where(lambda path: path[: len(prefix)] == prefix)


def norms(variables: Variables) -> Variables:
    """Selects all statistics, and the parameters of every module that has a ``scale`` or statistics."""
    params = [path.rpartition("/") for path in tree.paths(variables.params)]
    homes = {home for home, _, name in params if name == "scale"}
    homes |= {path.rpartition("/")[0] for path in tree.paths(variables.stats)}
    chosen = [home in homes for home, _, _ in params]
    structure = jax.tree.structure(variables.params)
    return Variables(jax.tree.unflatten(structure, chosen), jax.tree.map(lambda _: True, variables.stats))


def keep_local(inner: ClientAlgorithm, selection: Selection) -> ClientAlgorithm:
    """Any client algorithm, with a part of the model that stays with each client.

    Training starts from the received model with the client's own leaves in place. Their update, as the server
    sees it, is zero, and their statistics are the server's, so the global model keeps its initial values there:
    only ``personalize`` gives a model worth evaluating.

    Args:
        inner: how the client trains.
        selection: what stays: ``params_where(...)``, ``module_named(...)``, ``norms`` or a function of one's own.

    Raises:
        ValueError: at ``init``, if nothing is selected or every parameter is.

    >>> import optax
    >>> from fedjax_geo.clients import local_sgd
    >>> client = keep_local(local_sgd(optax.sgd(0.05)), params_where(lambda path: path[-1] == "bias"))
    """

    def init(variables: Variables) -> KeptState:
        chosen = selection(variables)
        if not any(jax.tree.leaves(chosen)) or all(jax.tree.leaves(chosen.params)):
            raise ValueError(
                "keep_local must select a part of the model, got nothing or all of the parameters "
                f"{tree.paths(variables.params)}"
            )
        return KeptState(_pick(chosen, variables), inner.init(variables))

    def whole(variables: Variables, state: KeptState) -> Variables:
        return _put(selection(variables), variables, state.own)

    def adapt(task: Task, variables: Variables, state: KeptState, batches: Batches, **rest: Any) -> Variables:
        assert inner.adapt is not None
        return inner.adapt(task, whole(variables, state), state.inner, batches, **rest)

    def train(
        task: Task,
        variables: Variables,
        shared: PyTree,
        state: KeptState,
        batches: Batches,
        *,
        round: Array,
        key: Key,
    ) -> ClientOutput:
        chosen, start = selection(variables), whole(variables, state)
        out = inner.train(task, start, shared, state.inner, batches, round=round, key=key)
        end = Variables(tree.subtract(start.params, out.update), out.stats)
        sent = Variables(
            jax.tree.map(lambda own, u: jnp.zeros_like(u) if own else u, chosen.params, out.update),
            jax.tree.map(lambda own, old, new: old if own else new, chosen.stats, variables.stats, out.stats),
        )
        state = KeptState(_pick(chosen, end), out.state)
        return out._replace(update=sent.params, stats=sent.stats, state=state)

    return inner._replace(
        train=train,
        init=init,
        share=lambda shared, before, after, n: inner.share(shared, before.inner, after.inner, n),
        personalize=lambda variables, state: inner.personalize(whole(variables, state), state.inner),
        complete=lambda variables, state: inner.complete(whole(variables, state), state.inner),
        adapt=None if inner.adapt is None else adapt,
    )


def fedper(inner: ClientAlgorithm, head: str) -> ClientAlgorithm:
    """FedPer: every client has a head of its own, trained together with the shared body.

    Args:
        inner: how the client trains.
        head: name of the module that stays, such as ``"fc3"``.
    """
    return keep_local(inner, module_named(head))


def fedbn(inner: ClientAlgorithm) -> ClientAlgorithm:
    """FedBN: every client has norm layers of its own, with their statistics."""
    return keep_local(inner, norms)


def _pick(chosen: Variables, variables: Variables) -> tuple[Array, ...]:
    pairs = zip(jax.tree.leaves(chosen), jax.tree.leaves(variables), strict=True)
    return tuple(leaf for own, leaf in pairs if own)


def _put(chosen: Variables, variables: Variables, own: tuple[Array, ...]) -> Variables:
    mine = iter(own)
    return jax.tree.map(lambda is_own, leaf: next(mine) if is_own else leaf, chosen, variables)
