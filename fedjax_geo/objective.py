"""The loss of a model on batches and on whole sets of examples."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from fedjax_geo import tree
from fedjax_geo.batches import cut
from fedjax_geo.types import Array, Batch, Batches, Examples, Key, PyTree, Task, Variables

Loss = Callable[[Variables, Batch, Key], tuple[Array, PyTree]]  # -> (scalar, new statistics)


def cross_entropy(logits: Array, labels: Array) -> Array:
    """Softmax cross-entropy per example: ``[b, c]``, int ``[b]`` -> ``[b]``, in nats."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def masked_mean(values: Array, mask: Array) -> Array:
    """Mean over the true entries; 0, with gradient 0, when there are none."""
    count = jnp.sum(mask.astype(values.dtype))
    return jnp.sum(jnp.where(mask, values, 0)) / jnp.maximum(count, 1)


def apply_model(
    task: Task, variables: Variables, batch: Batch, *, train: bool, key: Key, augment: bool | None = None
) -> tuple[Array, PyTree]:
    """Logits ``[b, c]`` of a batch and the statistics after it; inputs are augmented in training unless said."""
    prepare_key, model_key = jax.random.split(key)
    x = task.prepare(batch.x, train=train if augment is None else augment, key=prepare_key)
    return task.model.apply(variables, x, train=train, key=model_key, mask=batch.mask)


def training_loss(task: Task) -> Loss:
    """Mean loss of a batch over its true examples, with dropout and batch statistics on."""

    def loss(variables: Variables, batch: Batch, key: Key) -> tuple[Array, PyTree]:
        logits, stats = apply_model(task, variables, batch, train=True, key=key)
        return masked_mean(task.example_loss(logits, batch.y), batch.mask), stats

    return loss


def local_loss(task: Task, variables: Variables, batches: Batches, key: Key) -> Array:
    """Mean loss over all of one client's examples at fixed parameters, dropout off; 0 without examples.

    This is F_i(theta_t) of qFedAvg, AFL, FedFV and FedLF.
    """

    def add_batch(index: Array, sum_so_far: Array) -> Array:
        batch = batches.ordered(index)
        logits, _ = apply_model(task, variables, batch, train=False, key=key)
        losses = task.example_loss(logits, batch.y)
        return sum_so_far + jnp.sum(jnp.where(batch.mask, losses, 0)).astype(sum_so_far.dtype)

    dtype = jnp.result_type(jnp.float32, *jax.tree.leaves(variables.params))
    zero = jnp.zeros((), dtype)
    return jax.lax.fori_loop(0, batches.num_ordered, add_batch, zero) / jnp.maximum(batches.num_examples, 1)


def mean_gradient(
    task: Task, variables: Variables, examples: Examples, *, batch_size: int, train: bool, key: Key
) -> PyTree:
    """Exact gradient of the mean loss over a whole set of examples, accumulated batch by batch.

    Args:
        task: model and loss.
        variables: where the gradient is taken.
        examples: ``[v, ...]``, v at least 1.
        batch_size: examples per pass; changes memory and rounding only (unless ``train`` mixes examples).
        train: whether dropout and batch statistics are on; examples are not augmented in any case.
        key: randomness, folded with the batch's number.

    Returns:
        Gradient, like params.
    """
    size = examples.y.shape[0]
    batch_size = min(batch_size, size)

    def summed_loss(params: PyTree, batch: Batch, key: Key) -> Array:
        at = variables._replace(params=params)
        logits, _ = apply_model(task, at, batch, train=train, key=key, augment=False)
        return jnp.sum(jnp.where(batch.mask, task.example_loss(logits, batch.y), 0))

    def add_batch(gradient: PyTree, index: Array) -> tuple[PyTree, None]:
        batch = cut(examples, None, size, index, batch_size)
        more = jax.grad(summed_loss)(variables.params, batch, jax.random.fold_in(key, index))
        return tree.add(gradient, more), None

    indices = jnp.arange(-(-size // batch_size), dtype=jnp.int32)
    gradient, _ = jax.lax.scan(add_batch, tree.zeros_like(variables.params), indices)
    return jax.tree.map(lambda g: g / size, gradient)
