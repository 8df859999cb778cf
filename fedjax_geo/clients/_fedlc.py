"""FedLC: logits calibrated by how often the client sees each class.

Zhang, Li, Li, Xu, Wu, Ding, Wu, 2022, "Federated Learning with Label Distribution Skew via Logits Calibration",
arXiv 2209.00189.
"""

import jax
import jax.numpy as jnp

from fedjax_geo import _validate
from fedjax_geo.clients._local import Optimizer, local_steps
from fedjax_geo.objective import apply_model, training_loss
from fedjax_geo.types import Array, Batches, ClientAlgorithm, ClientOutput, Key, PyTree, Task, Variables

_ABSENT = 1e-8  # stands for the count of a class that the client does not have


def fedlc(optimizer: Optimizer, tau: float = 1.0) -> ClientAlgorithm:
    """Trains on ``logits_c - tau n_c^(-1/4)``, n_c the client's examples of class c.

    The rarer a class, the larger the margin it is given; classes that the client does not have are pushed out of
    its loss (their logits fall by 100 tau). The calibrated logits go to the task's own loss. With cross-entropy
    the true class counts in the denominator, as in the public implementations; the paper leaves it out, which
    makes a loss without lower bound and no FedAvg at tau = 0.

    Args:
        optimizer: of the local steps, as in ``local_sgd``.
        tau: strength of the calibration; 0 is FedAvg.

    Raises:
        ValueError: if tau is negative or the optimizer's first step is not finite.

    >>> import optax
    >>> client = fedlc(optax.sgd(0.05))
    """
    by_round = _validate.optimizer("optimizer", optimizer)
    _validate.non_negative("tau", tau)

    def train(
        task: Task,
        variables: Variables,
        shared: PyTree,
        state: PyTree,
        batches: Batches,
        *,
        round: Array,
        key: Key,
    ) -> ClientOutput:
        def forward(index: Array) -> Array:
            return apply_model(task, variables, batches.ordered(index), train=False, key=key)[0]

        logits = jax.eval_shape(forward, jnp.int32(0))
        counts = class_counts(batches, logits.shape[-1]).astype(logits.dtype)
        margin = tau * jnp.where(counts > 0, counts, _ABSENT) ** -0.25

        def calibrated(logits: Array, labels: Array) -> Array:
            return task.example_loss(logits - margin[None, :], labels)

        loss = training_loss(task._replace(example_loss=calibrated))
        result = local_steps(loss, variables, batches, by_round(round), key=key)
        return ClientOutput(result.update, result.stats, state, metrics={"train_loss": result.loss})

    return ClientAlgorithm(train)


def class_counts(batches: Batches, num_classes: int) -> Array:
    """Examples of each class that a client has, int32 ``[num_classes]``."""

    def add_batch(index: Array, counts: Array) -> Array:
        batch = batches.ordered(index)
        return counts.at[batch.y].add(batch.mask.astype(counts.dtype))

    return jax.lax.fori_loop(0, batches.num_ordered, add_batch, jnp.zeros((num_classes,), jnp.int32))
