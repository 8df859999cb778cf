"""The last update of every client of the population, for aggregators that look back."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_geo import _validate, tree
from fedjax_geo.types import Array, PyTree


class History(NamedTuple):
    """Stored updates; as much memory as n models."""

    updates: PyTree  # leaves [n, ...]
    seen: Array  # round of each, -1 for clients never seen, int32 [n]


def start(params: PyTree, num_clients: int | None) -> History | optax.EmptyState:
    """The history before the first round; without a population, none is kept."""
    if num_clients is None:
        return optax.EmptyState()
    n = _validate.at_least("num_clients", num_clients, 1)
    empty = jax.tree.map(lambda p: jnp.zeros((n, *p.shape), p.dtype), params)
    return History(empty, jnp.full((n,), -1, jnp.int32))


def check_population(num_clients: int | None, info: dict[str, Any]) -> None:
    """A history for another population would take one client for another.

    Raises:
        ValueError: while traced, if the round's n is known and is not the history's.
    """
    population = info.get("num_clients")
    if num_clients is not None and isinstance(population, int) and population != num_clients:
        raise ValueError(f"num_clients={num_clients} was given to an aggregator, and the round has {population}")


def record(
    history: History | optax.EmptyState, updates: PyTree, usable: Array, client_ids: Array, round: Array
) -> History | optax.EmptyState:
    """The history after a round, if one is kept; clients that are not usable keep what they had."""
    if not isinstance(history, History):
        return history

    def put(stored: Array, new: Array) -> Array:
        kept = jnp.where(tree.column(usable, new), new.astype(stored.dtype), stored[client_ids])
        return stored.at[client_ids].set(kept)

    rounds = jnp.broadcast_to(jnp.asarray(round, history.seen.dtype), usable.shape)
    return History(jax.tree.map(put, history.updates, updates), put(history.seen, rounds))
