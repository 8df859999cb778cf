"""Plain local training, the client of FedAvg.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas, 2017, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", arXiv 1602.05629.
"""

from fedjax_geo import _validate
from fedjax_geo.clients._local import Optimizer, local_steps
from fedjax_geo.objective import training_loss
from fedjax_geo.types import Array, Batches, ClientAlgorithm, ClientOutput, Key, PyTree, Task, Variables


def local_sgd(optimizer: Optimizer) -> ClientAlgorithm:
    """Each client takes its local steps with an optimizer started fresh every round.

    Args:
        optimizer: any optax optimizer, or a function of the round (int32 scalar, from 0) that returns one,
            for learning rates that change over rounds.

    Raises:
        ValueError: if the optimizer's first step is not finite.

    >>> import optax
    >>> fixed = local_sgd(optax.sgd(0.05))
    >>> decaying = local_sgd(lambda round: optax.sgd(0.05 * 0.999**round))
    """
    by_round = _validate.optimizer("optimizer", optimizer)

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
        result = local_steps(training_loss(task), variables, batches, by_round(round), key=key)
        return ClientOutput(result.update, result.stats, state, metrics={"train_loss": result.loss})

    return ClientAlgorithm(train)
