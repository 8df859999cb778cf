"""Elastic aggregation, the client's half: how sensitive is the model to each tensor?

Chen, Hu, Tan, Wei, Wu, 2023, "Elastic Aggregation for Federated Optimization", CVPR 2023, pages 12187-12197.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fedjax_geo import _validate
from fedjax_geo.clients._local import Optimizer, local_steps
from fedjax_geo.objective import apply_model, masked_mean, training_loss
from fedjax_geo.types import Array, Batch, Batches, ClientAlgorithm, ClientOutput, Key, PyTree, Task, Variables

Objective = Callable[[Task], Callable[[Array, Array], Array]]  # task -> (logits [b, c], y [b]) -> [b]


def output_norm(task: Task) -> Callable[[Array, Array], Array]:
    """Squared norm of the logits, the paper's measure, which needs no labels."""
    del task
    return lambda logits, labels: jnp.sum(jnp.square(logits), axis=-1)


def label_loss(task: Task) -> Callable[[Array, Array], Array]:
    """The task's own loss, what some implementations measure."""
    return task.example_loss


def elastic(
    optimizer: Optimizer, fraction: float = 0.3, decay: float = 0.95, objective: Objective = output_norm
) -> ClientAlgorithm:
    """Measures sensitivities on a share of the client's examples and trains on the others.

    At the received model, dropout off, each tensor's sensitivity gathers over the batches of the share:
    ``Omega <- decay Omega + (1 - decay) ||grad||^2``, from zero in every round. The report is a tree like params
    with a scalar for each tensor, for the server's ``zeta = 1 + tau - (sum_i rho_i Omega_i) / max_i Omega_i``.

    The share is drawn anew each round: the first ``round(fraction n_i)`` examples of the round's first shuffle,
    but never all. The others are served in the order of that shuffle in every local epoch, so that no held
    example is trained on, and the steps shrink in proportion. A client with too few examples to hold one
    reports zeros.

    Args:
        optimizer: of the local steps, as in ``local_sgd``.
        fraction: share of the examples that sensitivities are measured on.
        decay: of the running mean over batches.
        objective: whose gradient is measured: ``output_norm`` or ``label_loss``.

    Raises:
        ValueError: if fraction or decay is not in [0, 1) or the optimizer's first step is not finite.

    >>> import optax
    >>> client = elastic(optax.sgd(0.05), fraction=0.3)
    """
    by_round = _validate.optimizer("optimizer", optimizer)
    _validate.fraction("fraction", fraction)
    _validate.fraction("decay", decay)

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
        held, measured, trained = _split(batches, fraction)
        batch_objective = objective(task)

        def mean_objective(params: PyTree, batch: Batch) -> Array:
            logits, _ = apply_model(task, variables._replace(params=params), batch, train=False, key=key)
            return masked_mean(batch_objective(logits, batch.y), batch.mask)

        def measure(index: Array, omega: PyTree) -> PyTree:
            gradient = jax.grad(mean_objective)(variables.params, measured(index))
            return jax.tree.map(
                lambda o, g: (decay * o + (1 - decay) * jnp.sum(jnp.square(g))).astype(o.dtype), omega, gradient
            )

        zeros = jax.tree.map(lambda p: jnp.zeros((), p.dtype), variables.params)
        omega = jax.lax.fori_loop(0, held, measure, zeros)
        result = local_steps(training_loss(task), variables, trained, by_round(round), key=key)
        return ClientOutput(
            result.update,
            result.stats,
            state,
            report=omega,
            metrics={"train_loss": result.loss},
            num_steps=trained.num_steps,
        )

    return ClientAlgorithm(train)


def _split(batches: Batches, fraction: float) -> tuple[Array, Callable[[Array], Batch], Batches]:
    """Number of batches to measure on, those batches, and the batches to train on.

    The batch in which the cut falls is in both, each time with the others' examples masked out.
    """
    size = jax.eval_shape(batches.ordered, jnp.int32(0)).mask.shape[0]
    per_epoch = batches.num_ordered
    held = jnp.round(fraction * batches.num_examples).astype(jnp.int32)
    held = jnp.clip(held, 0, jnp.maximum(batches.num_examples - 1, 0))
    first = held // size
    left = per_epoch - first  # training batches in an epoch
    steps = jnp.clip(batches.num_steps * left // jnp.maximum(per_epoch, 1), 1, None)

    def cut(index: Array, training: bool) -> Batch:
        batch = batches.get(index)
        is_held = index * size + jnp.arange(size, dtype=jnp.int32) < held
        return batch._replace(mask=batch.mask & (is_held ^ training))

    trained = batches._replace(
        get=lambda k: cut(first + k % jnp.maximum(left, 1), True),
        num_steps=jnp.minimum(steps, batches.num_steps),
    )
    return -(-held // size), lambda index: cut(index, False), trained
