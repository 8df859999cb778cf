"""FedDyn: a linear term that makes the clients' optima agree with the server's.

Acar, Zhao, Matas, Mattina, Whatmough, Saligrama, 2021, "Federated Learning Based on Dynamic Regularization",
arXiv 2111.04263.
"""

import jax

from fedjax_geo import _validate, tree
from fedjax_geo.clients._local import Optimizer, local_steps
from fedjax_geo.objective import training_loss
from fedjax_geo.types import Array, Batches, ClientAlgorithm, ClientOutput, Key, PyTree, Task, Variables


def feddyn(optimizer: Optimizer, alpha: float = 0.1) -> ClientAlgorithm:
    """Each client minimises ``F_i(w) - <lambda_i, w> + alpha/2 ||w - theta_t||^2``.

    Afterwards ``lambda_i <- lambda_i + alpha g_i``, from zero. This is half of the method. The server, with the
    same alpha and n clients in the population, needs a link that keeps ``h`` (zero at first) and does

        ``h <- h + (alpha / n) sum_i g_i``,  ``step = mean_i g_i + h / alpha``

    over the cohort, with a uniform mean and a server learning rate of 1: ``aggregators.feddyn_server``.

    Args:
        optimizer: of the local steps, as in ``local_sgd``.
        alpha: strength of the regularisation; 0 is FedAvg.

    Raises:
        ValueError: if alpha is negative or the optimizer's first step is not finite.

    >>> import optax
    >>> client = feddyn(optax.sgd(0.05), alpha=0.1)
    """
    by_round = _validate.optimizer("optimizer", optimizer)
    _validate.non_negative("alpha", alpha)

    def train(
        task: Task,
        variables: Variables,
        shared: PyTree,
        state: PyTree,  # lambda_i
        batches: Batches,
        *,
        round: Array,
        key: Key,
    ) -> ClientOutput:
        def regularize(gradient: PyTree, update: PyTree) -> PyTree:  # update = theta_t - w
            return jax.tree.map(lambda g, dual, u: g - dual - alpha * u, gradient, state, update)

        result = local_steps(training_loss(task), variables, batches, by_round(round), key=key, adjust=regularize)
        dual = jax.tree.map(lambda dual, u: dual + alpha * u, state, result.update)
        return ClientOutput(result.update, result.stats, dual, metrics={"train_loss": result.loss})

    return ClientAlgorithm(train, init=lambda variables: tree.zeros_like(variables.params))
