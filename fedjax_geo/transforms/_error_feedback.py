"""Memory of what compression left out, one for each client.

Seide, Fu, Droppo, Li, Yu, 2014, "1-Bit Stochastic Gradient Descent"; Karimireddy, Rebjock, Stich, Jaggi, 2019,
"Error Feedback Fixes SignSGD and other Gradient Compression Schemes", arXiv 1901.09847, algorithm 1.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_geo import _validate, tree
from fedjax_geo.types import Array, PyTree


class FeedbackState(NamedTuple):
    """What each client has not sent yet, leaves ``[n, ...]``, and the state of the compression."""

    memory: PyTree
    inner: PyTree


def error_feedback(
    compression: optax.GradientTransformation, num_clients: int
) -> optax.GradientTransformationExtraArgs:
    """A compression, and what it leaves out added to the same client's next update: ``[m, ...]`` the same.

    ``sent = compress(update + memory)``, ``memory = update + memory - sent``. The memory belongs to the client,
    found by its id, and takes ``n`` times the size of the model. A client that does not answer sends nothing and
    keeps its memory; one whose update is not finite keeps its memory, and its update goes on as it is.

    Args:
        compression: takes stacked updates to the same, such as ``top_k(0.01)`` or ``quantize(2)``.
        num_clients: clients of the population, n.

    Raises:
        ValueError: if num_clients is below 1, and while traced, if it is not that of the round.
    """
    _validate.at_least("num_clients", num_clients, 1)
    compression = optax.with_extra_args_support(compression)

    def init(params: PyTree) -> FeedbackState:
        memory = jax.tree.map(lambda leaf: jnp.zeros((num_clients, *leaf.shape), leaf.dtype), params)
        return FeedbackState(memory, compression.init(params))

    def update(
        updates: PyTree,
        state: FeedbackState,
        params: PyTree = None,
        *,
        num_examples: Array,
        client_ids: Array,
        **info: Any,
    ) -> tuple[PyTree, FeedbackState]:
        population = info.get("num_clients", num_clients)
        if population != num_clients:
            raise ValueError(f"error_feedback was built for {num_clients} clients, and the round has {population}")
        before = tree.take(state.memory, client_ids)
        whole = tree.add(updates, before)
        sent, inner = compression.update(
            whole, state.inner, params, num_examples=num_examples, client_ids=client_ids, **info
        )
        answered, finite = num_examples > 0, tree.finite_clients(updates)

        def rows(condition: Array, yes: PyTree, no: PyTree) -> PyTree:
            return jax.tree.map(lambda a, b: jnp.where(tree.column(condition, a), a, b), yes, no)

        sent = rows(answered, rows(finite, sent, updates), tree.zeros_like(sent))
        left = rows(answered & finite, tree.subtract(whole, sent), before)
        memory = jax.tree.map(lambda all_, some: all_.at[client_ids].set(some), state.memory, left)
        return sent, FeedbackState(memory, inner)

    return optax.GradientTransformationExtraArgs(init, update)
