"""Fine-tuning: what a client serves is the global model after some training of its own.

The plainest personalisation, for example in Cheng, Chadha, Duchi, 2021, "Fine-tuning is Fine in Federated
Learning", arXiv 2108.07313.
"""

import jax

from fedjax_geo import _validate, tree
from fedjax_geo.clients._keep_local import Selection
from fedjax_geo.clients._local import Optimizer, local_steps, moving_only
from fedjax_geo.objective import training_loss
from fedjax_geo.types import Array, Batches, ClientAlgorithm, Key, PyTree, Task, Variables


def fine_tune(
    inner: ClientAlgorithm, optimizer: Optimizer, epochs: int = 1, selection: Selection | None = None
) -> ClientAlgorithm:
    """Any client algorithm, whose model each client fine-tunes before it is evaluated.

    Every client serves the present model, as ``inner`` would serve it, trained further on the client's own
    training examples, whether it has taken part or not. That happens at evaluation only: training is ``inner``,
    and no model is kept.

    Args:
        inner: how the client trains; fine-tuning starts from the model that it would serve.
        optimizer: of the fine-tuning, as in ``local_sgd``.
        epochs: passes over the client's examples, in batches of the round's size.
        selection: what is tuned, such as ``module_named("fc3")`` for the head; default everything.

    Raises:
        ValueError: if epochs is below 1 or the optimizer's first step is not finite.

    >>> import optax
    >>> from fedjax_geo.clients import local_sgd
    >>> client = fine_tune(local_sgd(optax.sgd(0.05)), optax.sgd(0.01), epochs=2)
    """
    by_round = _validate.optimizer("optimizer", optimizer)
    _validate.at_least("epochs", epochs, 1)

    def adapt(
        task: Task, variables: Variables, state: PyTree, batches: Batches, *, round: Array, key: Key
    ) -> Variables:
        if inner.adapt is None:
            start = inner.personalize(variables, state)
        else:
            inner_key, key = jax.random.split(key)
            start = inner.adapt(task, variables, state, batches, round=round, key=inner_key)
        passes = batches._replace(num_steps=epochs * batches.num_ordered)
        tuner = by_round(round)
        if selection is not None:
            tuner = moving_only(tuner, selection(start).params)
        result = local_steps(training_loss(task), start, passes, tuner, key=key)
        end = Variables(tree.subtract(start.params, result.update), result.stats)
        if selection is None:
            return end
        return jax.tree.map(lambda tuned, new, old: new if tuned else old, selection(start), end, start)

    return inner._replace(adapt=adapt)
