"""One client's examples, served batch by batch out of the flat copy that all clients share."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_geo.shuffle import permuted
from fedjax_geo.types import Array, Batch, Batches, Examples, Key


class Work(NamedTuple):
    """What a sampled client does in a round.

    Attributes:
        batch_size: examples per local step; the last batch of an epoch holds what is left.
        epochs: passes over the client's examples, ``K = epochs * ceil(n_i / batch_size)``; or
        steps: local steps K, the same for every client.
    """

    batch_size: int = 20
    epochs: int | None = 1
    steps: int | None = None


def check_work(work: Work) -> Work:
    """The work, checked.

    Raises:
        ValueError: for a batch size or amount below 1, or unless exactly one of epochs and steps is given.
    """
    if work.batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {work.batch_size}")
    if (work.epochs is None) == (work.steps is None):
        raise ValueError(f"give either epochs or steps, got epochs={work.epochs} and steps={work.steps}")
    name = "epochs" if work.steps is None else "steps"
    amount = work.epochs if work.steps is None else work.steps
    if amount is None or amount < 1:
        raise ValueError(f"{name} must be at least 1, got {amount}")
    return work


def num_local_steps(sizes: Array, work: Work) -> Array:
    """Local steps K for clients of the given numbers of examples; 0 for a client without examples."""
    if work.steps is not None:
        return jnp.where(sizes > 0, work.steps, 0).astype(jnp.int32)
    return (work.epochs or 1) * -(-sizes // work.batch_size)


def places(size: Array | int, index: Array, batch_size: int) -> tuple[Array, Array]:
    """Places of batch number ``index`` in one pass over ``size`` things, and which of them are true, ``[b]`` each.

    Past the end the last place is repeated.
    """
    slots = index * batch_size + jnp.arange(batch_size, dtype=jnp.int32)
    return jnp.minimum(slots, jnp.maximum(size - 1, 0)), slots < size


def cut(examples: Examples, indices: Array | None, size: Array | int, index: Array, batch_size: int) -> Batch:
    """Batch number ``index`` of one pass, in the given order, over ``indices[:size]``; None: over all examples."""
    rows, mask = places(size, index, batch_size)
    rows = rows if indices is None else indices[rows]
    return Batch(examples.x[rows], examples.y[rows], mask)


def serve(examples: Examples, indices: Array, size: Array, key: Key, work: Work) -> Batches:
    """The batches of one client's round.

    Args:
        examples: the flat copy, ``[N, ...]``.
        indices: the client's rows of it, int32 ``[capacity]``, meaningful up to ``size``.
        size: the client's number of examples, int32 scalar.
        key: the client's key for this round; epoch e is shuffled by its fold with e.
        work: batch size and amount.
    """
    per_epoch = -(-size // work.batch_size)

    def get(step: Array) -> Batch:
        epoch, index = jnp.divmod(step, jnp.maximum(per_epoch, 1))
        ordered, mask = places(size, index, work.batch_size)
        rows = indices[permuted(jax.random.fold_in(key, epoch), ordered, jnp.maximum(size, 1))]
        return Batch(examples.x[rows], examples.y[rows], mask)

    return Batches(
        get=get,
        num_steps=num_local_steps(size, work),
        ordered=lambda index: cut(examples, indices, size, index, work.batch_size),
        num_ordered=per_epoch,
        num_examples=size,
    )
