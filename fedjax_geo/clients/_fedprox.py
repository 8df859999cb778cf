"""FedProx: local steps that are pulled back to where they started.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, 2020, "Federated Optimization in Heterogeneous Networks",
arXiv 1812.06127.
"""

import jax

from fedjax_geo import _validate
from fedjax_geo.clients._local import Optimizer, local_steps
from fedjax_geo.objective import training_loss
from fedjax_geo.types import Array, Batches, ClientAlgorithm, ClientOutput, Key, PyTree, Task, Variables


def fedprox(optimizer: Optimizer, mu: float = 0.01) -> ClientAlgorithm:
    """Each client minimises ``F_i(w) + mu/2 ||w - theta_t||^2``.

    Args:
        optimizer: of the local steps, as in ``local_sgd``.
        mu: strength of the pull; 0 is FedAvg.

    Raises:
        ValueError: if mu is negative or the optimizer's first step is not finite.

    >>> import optax
    >>> client = fedprox(optax.sgd(0.05), mu=0.1)
    """
    by_round = _validate.optimizer("optimizer", optimizer)
    _validate.non_negative("mu", mu)

    def pull(gradient: PyTree, update: PyTree) -> PyTree:
        return jax.tree.map(lambda g, u: g - mu * u, gradient, update)  # u = theta_t - w

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
        result = local_steps(training_loss(task), variables, batches, by_round(round), key=key, adjust=pull)
        return ClientOutput(result.update, result.stats, state, metrics={"train_loss": result.loss})

    return ClientAlgorithm(train)
