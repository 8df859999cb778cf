"""MOON: representations that stay close to the global model's and leave the client's last ones behind.

Li, He, Song, 2021, "Model-Contrastive Federated Learning", arXiv 2103.16257.
"""

import jax
import jax.numpy as jnp

from fedjax_geo import _validate, tree
from fedjax_geo.clients._local import Optimizer, local_steps
from fedjax_geo.clients._own import Own, recall, trained, untrained
from fedjax_geo.objective import masked_mean
from fedjax_geo.types import Array, Batch, Batches, ClientAlgorithm, ClientOutput, Key, PyTree, Task, Variables


def moon(optimizer: Optimizer, mu: float = 5.0, tau: float = 0.5) -> ClientAlgorithm:
    """Adds ``mu`` times the model-contrastive loss to each client's loss.

    Per example ``-log(e^(s(z, z_global) / tau) / (e^(s(z, z_global) / tau) + e^(s(z, z_previous) / tau)))``, where
    z are the features that the last layer sees, s is the cosine, z_global comes from the received model and
    z_previous from the client's own model of its last round (of the received one, the first time). Both are
    fixed, in evaluation mode. Needs a model with features.

    Args:
        optimizer: of the local steps, as in ``local_sgd``.
        mu: weight of the contrastive loss; 0 is FedAvg.
        tau: temperature.

    Raises:
        ValueError: if mu is negative, tau not positive or the optimizer's first step is not finite; in use, if
            the model offers no features.

    >>> import optax
    >>> client = moon(optax.sgd(0.05), mu=1.0)
    """
    by_round = _validate.optimizer("optimizer", optimizer)
    _validate.non_negative("mu", mu)
    _validate.positive("tau", tau)

    def train(
        task: Task,
        variables: Variables,
        shared: PyTree,
        state: Own,
        batches: Batches,
        *,
        round: Array,
        key: Key,
    ) -> ClientOutput:
        features = task.model.features
        if features is None:
            raise ValueError(
                "moon compares features, and this model offers none: give Model.features, such as by "
                "from_nnx(..., features=...)"
            )
        previous = recall(state, variables)

        def loss(current: Variables, batch: Batch, key: Key) -> tuple[Array, PyTree]:
            prepare_key, model_key = jax.random.split(key)
            x = task.prepare(batch.x, train=True, key=prepare_key)
            fixed = {"train": False, "key": model_key, "mask": batch.mask}
            moving = fixed | {"train": True}
            logits, stats = task.model.apply(current, x, **moving)
            z = features(current, x, **moving)

            def similarity(other: Variables) -> Array:
                return jnp.sum(_unit(z) * _unit(features(other, x, **fixed)), axis=-1) / tau

            contrast = jax.nn.softplus(similarity(previous) - similarity(variables))
            return masked_mean(task.example_loss(logits, batch.y) + mu * contrast, batch.mask), stats

        result = local_steps(loss, variables, batches, by_round(round), key=key)
        own = trained(Variables(tree.subtract(variables.params, result.update), result.stats))
        return ClientOutput(result.update, result.stats, own, metrics={"train_loss": result.loss})

    return ClientAlgorithm(train, init=untrained)


def _unit(z: Array) -> Array:
    """Rows of length one, ``[b, f]``; a row of zeros stays, with gradient zero."""
    square = jnp.sum(jnp.square(z), axis=-1, keepdims=True)
    return jnp.where(square > 0, z / jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
