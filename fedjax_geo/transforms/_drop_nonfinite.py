"""Clients whose update is not finite do not count."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_geo import tree
from fedjax_geo.types import Array, PyTree


class DropState(NamedTuple):
    """How many updates were dropped, and the state of what they were kept from."""

    last: Array  # int32 [], in the last round
    total: Array  # int32 [], in all rounds
    inner: PyTree


def drop_nonfinite(inner: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """A server, told that clients with a NaN or an infinity in their update have not answered.

    A link cannot take weight away from a client for the links that follow it, so this one is put around them:
    around the aggregator, or around a whole chain. Dropped clients come to it with an update of zero, weight
    zero, no examples, no steps and a loss of zero, the weights of the others scaled to sum to one. Where nobody
    remains, the inner state stays as it is and the direction is zero.

    A round leaves clients whose training was not finite out by itself. This link is for what other links make of
    their updates on the way, and for aggregators used outside of a round.

    Args:
        inner: takes stacked updates ``[m, ...]``, returns ``[...]``; an aggregator or a chain with one.

    >>> from fedjax_geo.aggregators import weighted_mean
    >>> link = drop_nonfinite(weighted_mean())
    >>> updates, weights = jnp.array([1.0, jnp.nan, 4.0]), jnp.array([0.5, 0.25, 0.25])
    >>> direction, state = link.update(updates, link.init(jnp.zeros(())), weights=weights)
    >>> float(direction), int(state.total)
    (2.0, 1)
    """
    inner = optax.with_extra_args_support(inner)

    def init(params: PyTree) -> DropState:
        none = jnp.zeros((), jnp.int32)
        return DropState(none, none, inner.init(params))

    def update(
        updates: PyTree, state: DropState, params: PyTree = None, *, weights: Any, **info: Any
    ) -> tuple[PyTree, DropState]:
        finite = tree.finite_clients(updates)
        kept = jax.tree.map(lambda leaf: jnp.where(tree.column(finite, leaf), leaf, jnp.zeros_like(leaf)), updates)
        weights = tree.normalize(weights, finite)
        info |= {
            name: jnp.where(finite, info[name], 0)
            for name in ("num_examples", "num_steps", "losses")
            if name in info
        }
        direction, new = inner.update(kept, state.inner, params, weights=weights, **info)
        remains = jnp.sum(tree.overall(weights)) > 0
        direction, new = tree.select(remains, (direction, new), (tree.zeros_like(direction), state.inner))
        dropped = jnp.sum(~finite, dtype=jnp.int32)
        return direction, DropState(dropped, state.total + dropped, new)

    return optax.GradientTransformationExtraArgs(init, update)
