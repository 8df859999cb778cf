"""Fine-tuning: what a client serves is the global model after some training of its own.

The plainest personalisation, for example in Cheng, Chadha, Duchi, 2021, "Fine-tuning is Fine in Federated
Learning", arXiv 2108.07313.
"""

from typing import NamedTuple

import jax

from fedjax_geo import _validate, tree
from fedjax_geo.clients._chance import TUNES
from fedjax_geo.clients._local import Optimizer, local_steps
from fedjax_geo.clients._own import Own, recall, trained, untrained
from fedjax_geo.objective import training_loss
from fedjax_geo.types import Array, Batches, ClientAlgorithm, ClientOutput, Key, PyTree, Task, Variables


class FineTuneState(NamedTuple):
    """The fine-tuned model, and the state of the algorithm inside."""

    tuned: Own
    inner: PyTree


def fine_tune(inner: ClientAlgorithm, optimizer: Optimizer, epochs: int = 1) -> ClientAlgorithm:
    """Any client algorithm, whose model each client also fine-tunes for itself.

    What it serves is fine-tuned from the global model of the last round in which it took part, because that is
    when it saw its data; a client that has not taken part serves what ``inner`` would. Training is ``inner``, bit
    for bit.

    Args:
        inner: how the client trains; fine-tuning starts from the model that it would serve.
        optimizer: of the fine-tuning, as in ``local_sgd``.
        epochs: passes over the client's examples.

    Raises:
        ValueError: if epochs is below 1 or the optimizer's first step is not finite.

    >>> import optax
    >>> from fedjax_geo.clients import local_sgd
    >>> client = fine_tune(local_sgd(optax.sgd(0.05)), optax.sgd(0.01), epochs=2)
    """
    by_round = _validate.optimizer("optimizer", optimizer)
    _validate.at_least("epochs", epochs, 1)

    def train(
        task: Task,
        variables: Variables,
        shared: PyTree,
        state: FineTuneState,
        batches: Batches,
        *,
        round: Array,
        key: Key,
    ) -> ClientOutput:
        out = inner.train(task, variables, shared, state.inner, batches, round=round, key=key)
        start = inner.personalize(variables, out.state)
        passes = batches._replace(num_steps=epochs * batches.num_ordered)
        own_key = jax.random.fold_in(key, TUNES)
        result = local_steps(training_loss(task), start, passes, by_round(round), key=own_key)
        tuned = trained(Variables(tree.subtract(start.params, result.update), result.stats))
        return out._replace(
            state=FineTuneState(tuned, out.state), metrics=out.metrics | {"tuned_loss": result.loss}
        )

    return inner._replace(
        train=train,
        init=lambda variables: FineTuneState(untrained(variables), inner.init(variables)),
        share=lambda shared, before, after, n: inner.share(shared, before.inner, after.inner, n),
        personalize=lambda variables, state: recall(state.tuned, inner.personalize(variables, state.inner)),
    )
