"""One client's examples, served batch by batch out of the flat copy that all clients share."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_geo.shuffle import permuted
from fedjax_geo.types import Array, Batch, Batches, Examples, Key, PyTree


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


def fitted(
    function: Callable[[PyTree, Batch], PyTree], argument: PyTree, batch: Batch, short: tuple[int, ...]
) -> PyTree:
    """``function(argument, batch)`` on fewer rows where the true ones fit: the first of ``short`` that holds them.

    Every size is one more compilation of the function. Under ``vmap`` all sizes are computed, so that there it is
    of no use.

    Args:
        function: does not depend on rows of the batch that are masked.
        argument: whatever else it takes.
        batch: its true rows first.
        short: sizes below that of the batch, rising; empty: the batch as it is.
    """
    if not short:
        return function(argument, batch)

    def on(rows: int) -> Callable[[PyTree, Batch], PyTree]:
        return lambda argument, batch: function(argument, jax.tree.map(lambda leaf: leaf[:rows], batch))

    fits = jnp.sum(jnp.sum(batch.mask) > jnp.array(short))
    return jax.lax.switch(fits, [*map(on, short), function], argument, batch)


def serve(
    examples: Examples, indices: Array, size: Array, key: Key, work: Work, short: tuple[int, ...] = ()
) -> Batches:
    """The batches of one client's round.

    Args:
        examples: the flat copy, ``[N, ...]``.
        indices: the client's rows of it, int32 ``[capacity]``, meaningful up to ``size``.
        size: the client's number of examples, int32 scalar.
        key: the client's key for this round; epoch e is shuffled by its fold with e.
        work: batch size and amount.
        short: see ``Batches``.
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
        short=short,
    )
