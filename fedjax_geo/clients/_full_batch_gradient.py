"""A client that does not train but tells its gradient, as in FedLF.

Pan, Li, Yu, Wang, Wang, Tang, Zhao, 2024, "FedLF: Layer-Wise Fair Federated Learning", AAAI 2024.
"""

import jax
import jax.numpy as jnp

from fedjax_geo import tree
from fedjax_geo.objective import apply_model
from fedjax_geo.types import Array, Batches, ClientAlgorithm, ClientOutput, Key, PyTree, Task, Variables


def full_batch_gradient() -> ClientAlgorithm:
    """The update is the exact gradient of the mean loss over all of the client's examples.

    It is taken at the received model, as that is evaluated: dropout and augmentation off, statistics unchanged.
    The server's learning rate is then the only one, and the round's amount of local work does not matter.

    >>> client = full_batch_gradient()
    """

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
        def summed_loss(params: PyTree, index: Array) -> Array:
            batch = batches.ordered(index)
            logits, _ = apply_model(task, variables._replace(params=params), batch, train=False, key=key)
            return jnp.sum(jnp.where(batch.mask, task.example_loss(logits, batch.y), 0))

        def add_batch(index: Array, sums: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
            loss, gradient = jax.value_and_grad(summed_loss)(variables.params, index)
            return sums[0] + loss.astype(sums[0].dtype), tree.add(sums[1], gradient)

        zero = jnp.zeros((), jnp.result_type(*jax.tree.leaves(variables.params)))
        zeros = (zero, tree.zeros_like(variables.params))
        sums = jax.lax.fori_loop(0, batches.num_ordered, add_batch, zeros)
        size = jnp.maximum(batches.num_examples, 1)
        loss, gradient = jax.tree.map(lambda s: (s / size).astype(s.dtype), sums)
        return ClientOutput(
            gradient,
            variables.stats,
            state,
            metrics={"train_loss": loss},
            num_steps=jnp.minimum(batches.num_steps, 1),
        )

    return ClientAlgorithm(train)
