"""Adapter from flax NNX to ``Model``."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from fedjax_geo.models._calls import accepted, floating, some_valid
from fedjax_geo.types import Array, Key, Model, PyTree, Variables


def from_nnx(factory: Callable[..., nnx.Module], *, features: str | None = None) -> Model:
    """Makes a model of a flax NNX module.

    Parameters are the module's ``nnx.Param``, statistics its ``nnx.BatchStat``, both as nested dictionaries
    with the names of the attributes as keys. The module is made anew for each call, set to train or to eval,
    with its random streams seeded from the key, and keeps nothing. It is passed ``rngs`` and ``mask``
    (bool [b], never all False) if it takes arguments of those names.

    Args:
      factory: ``(shape, rngs) -> module``, where ``shape`` is that of one example.
      features: name of the method that returns what the last layer sees, [b, f], if there is one.

    Returns:
      A model.

    Raises:
      ValueError: in use, if a parameter is not floating point, if the module holds variables that are neither
        parameters nor batch statistics nor random streams, or if it needs a key to train and is given none.

    >>> model = from_nnx(lambda shape, rngs: nnx.Linear(shape[0], 10, rngs=rngs))
    >>> jax.tree.map(jnp.shape, model.init(jax.random.key(0), jnp.ones((1, 4)))).params
    {'bias': (10,), 'kernel': (4, 10)}
    """

    @functools.cache
    def skeleton(shape: tuple[int, ...]) -> tuple[nnx.GraphDef, tuple[nnx.State, ...]]:
        return _split(nnx.eval_shape(lambda: factory(shape, nnx.Rngs(0))))

    def init(key: Key, x: Array) -> Variables:
        _, (params, stats, _) = _split(factory(x.shape[1:], nnx.Rngs(key)))
        return Variables(floating(_to_dict(params)), _to_dict(stats) or ())

    def call(
        method: str, variables: Variables, x: Array, train: bool, key: Key | None, mask: Array | None
    ) -> tuple[Array, PyTree]:
        graph, (params, stats, random) = skeleton(x.shape[1:])
        module = nnx.merge(
            graph,
            _from_dict(params, variables.params),
            _from_dict(stats, variables.stats or {}),
            _seeded(random, key, train),
        )
        (module.train if train else module.eval)()
        function = getattr(module, method)
        options = {"rngs": None if key is None else nnx.Rngs(key), "mask": some_valid(mask)}
        out = function(x, **accepted(function, options))
        if not train:
            return out, variables.stats
        return out, _to_dict(nnx.state(module, nnx.BatchStat)) or ()

    def apply(
        variables: Variables, x: Array, *, train: bool, key: Key | None = None, mask: Array | None = None
    ) -> tuple[Array, PyTree]:
        return call("__call__", variables, x, train, key, mask)

    def features_of(
        variables: Variables, x: Array, *, train: bool, key: Key | None = None, mask: Array | None = None
    ) -> Array:
        assert features is not None
        return call(features, variables, x, train, key, mask)[0]

    return Model(init, apply, None if features is None else features_of)


def _split(module: nnx.Module) -> tuple[nnx.GraphDef, tuple[nnx.State, ...]]:
    """Graph, and the states of parameters, statistics and random streams."""
    graph, state = nnx.split(module)
    params, stats, random, other = nnx.split_state(state, nnx.Param, nnx.BatchStat, nnx.RngState, ...)
    if other:
        paths = sorted("/".join(map(str, path)) for path, _ in nnx.to_flat_state(other))
        raise ValueError(f"only nnx.Param and nnx.BatchStat are supported, got other variables at {paths}")
    return graph, (params, stats, random)


def _to_dict(state: nnx.State) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, variable in nnx.to_flat_state(state):
        node = tree
        for name in path[:-1]:
            node = node.setdefault(str(name), {})
        node[str(path[-1])] = variable.get_value()
    return tree


def _from_dict(state: nnx.State, tree: PyTree) -> nnx.State:
    def at(path: tuple[Any, ...]) -> Array:
        return functools.reduce(lambda node, name: node[str(name)], path, tree)

    return nnx.from_flat_state(
        (path, variable.replace(jnp.asarray(at(path)))) for path, variable in nnx.to_flat_state(state)
    )


def _seeded(state: nnx.State, key: Key | None, train: bool) -> nnx.State:
    """Random streams that start at ``key``, each elsewhere."""
    variables = nnx.to_flat_state(state)
    if key is None:
        if train and len(variables):
            raise ValueError("this model draws random numbers in training: pass a key")
        key = jax.random.key(0)

    def start(number: int, variable: nnx.Variable) -> Array:
        if isinstance(variable, nnx.RngKey):
            return jax.random.split(jax.random.fold_in(key, number), variable.shape)
        return jnp.zeros(variable.shape, variable.dtype)

    return nnx.from_flat_state((path, v.replace(start(i, v))) for i, (path, v) in enumerate(variables))
