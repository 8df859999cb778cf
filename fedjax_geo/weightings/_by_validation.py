"""Clients weighted by how well their trained models do on the server's validation set.

The comparison of FedVG, 2026, arXiv 2602.21399, whose code calls the weighting by accuracy "fedacc"; its mean with
FedVG's own, "fedgradacc", is ``mix(fedvg(), by_validation_accuracy())``.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fedjax_geo import _validate
from fedjax_geo.batches import cut
from fedjax_geo.objective import apply_model
from fedjax_geo.types import Array, Examples, Key, PyTree, RoundInfo, Task, Variables, Weighting
from fedjax_geo.weightings._separable import separable

Measure = Callable[[Task, Array, Array], Array]  # (task, logits [b, c], labels [b]) -> [b]


def _mean_over(per_example: Measure, batch_size: int) -> Callable[..., Array]:
    """A score: the mean of a function of logits and labels over the whole validation set, dropout off."""

    def score(task: Task, variables: Variables, update: PyTree, server_data: Examples | None, key: Key) -> Array:
        del update
        if server_data is None or not server_data.y.shape[0]:
            raise ValueError("weights by validation need server data: give the federation a validation set")
        examples, size = server_data, server_data.y.shape[0]
        width = min(batch_size, size)

        def add_batch(sum_so_far: Array, index: Array) -> tuple[Array, None]:
            batch = cut(examples, None, size, index, width)
            logits, _ = apply_model(task, variables, batch, train=False, key=jax.random.fold_in(key, index))
            values = jnp.where(batch.mask, per_example(task, logits, batch.y), 0)
            return sum_so_far + jnp.sum(values).astype(sum_so_far.dtype), None

        zero = jnp.zeros((), jnp.result_type(*jax.tree.leaves(variables.params), jnp.float32))
        indices = jnp.arange(-(-size // width), dtype=jnp.int32)
        return jax.lax.scan(add_batch, zero, indices)[0] / size

    return score


def by_validation_accuracy(batch_size: int = 500) -> Weighting:
    """Weights in proportion to the accuracy of each client's trained model on the validation set.

    Where nobody gets an example right, everyone counts the same. A model with logits that are not finite gets no
    weight.

    Args:
        batch_size: validation examples per pass; changes memory and speed, not the result.

    Raises:
        ValueError: if batch_size is below 1.
    """
    _validate.at_least("batch_size", batch_size, 1)

    def correct(task: Task, logits: Array, labels: Array) -> Array:
        del task
        hit = (jnp.argmax(logits, axis=1) == labels).astype(logits.dtype)
        return jnp.where(jnp.all(jnp.isfinite(logits), axis=1), hit, jnp.nan)  # argmax takes NaN for the largest

    def weigh(info: RoundInfo, state: PyTree) -> tuple[Array, PyTree]:
        accuracy = info.reports.score
        counted = (info.num_examples > 0) & jnp.isfinite(accuracy)
        accuracy = jnp.where(counted, accuracy, 0)
        return jnp.where(jnp.any(accuracy > 0), accuracy, counted.astype(accuracy.dtype)), state

    return Weighting(weigh, _mean_over(correct, batch_size), needs_server_data=True)


def by_validation_loss(batch_size: int = 500, *, eps: float = 1e-8) -> Weighting:
    """Weights in proportion to ``1 / (L_i + eps)``, L_i the mean loss of client i's model on the validation set.

    A negative loss counts as zero. A model whose loss is not finite gets no weight.

    Args:
        batch_size: validation examples per pass; changes memory and speed, not the result.
        eps: added to the loss. A model that fits the validation set perfectly takes practically all the weight.

    Raises:
        ValueError: if batch_size is below 1 or eps is not positive.
    """
    _validate.at_least("batch_size", batch_size, 1)
    _validate.positive("eps", eps)

    def loss(task: Task, logits: Array, labels: Array) -> Array:
        return task.example_loss(logits, labels)

    def weight(size: Array, before: Array, after: PyTree) -> Array:
        del before
        counted = (size > 0) & jnp.isfinite(after)
        return jnp.where(counted, 1 / (jnp.maximum(jnp.where(counted, after, 0), 0) + eps), 0)

    return separable(weight, _mean_over(loss, batch_size), needs_server_data=True)
