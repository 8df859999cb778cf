"""SCAFFOLD: control variates against client drift, option II.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, 2020, "SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning", arXiv 1910.06378, algorithm 1.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from fedjax_geo import _validate, tree
from fedjax_geo.clients._local import local_steps
from fedjax_geo.objective import training_loss
from fedjax_geo.types import Array, Batches, ClientAlgorithm, ClientOutput, Key, PyTree, Task, Variables


def scaffold(lr: float | Callable[[Array], Array]) -> ClientAlgorithm:
    """Local SGD along ``grad F_i(y) - c_i + c``, where c_i foresees the client's own gradient and c everybody's.

    After its K steps the client sets ``c_i <- c_i - c + g_i / (K lr)``, which is the mean of the gradients that
    it saw; c stays the mean of the c_i over the population. All start at zero. The division presumes plain SGD,
    so there is a learning rate here and not an optimizer. The server averages uniformly (``uniform()``); its
    learning rate eta_g is that of the server's chain.

    Args:
        lr: the local learning rate, or a function of the round (int32 scalar, from 0).

    Raises:
        ValueError: if the rate of round 0 is not a finite number above 0.

    >>> fixed = scaffold(0.05)
    >>> decaying = scaffold(lambda round: 0.05 * 0.999**round)
    """

    def rate(round: Array) -> float | Array:
        return lr(round) if callable(lr) else lr

    _validate.positive("lr", float(rate(jnp.zeros((), jnp.int32))))

    def train(
        task: Task,
        variables: Variables,
        shared: PyTree,  # c
        state: PyTree,  # c_i
        batches: Batches,
        *,
        round: Array,
        key: Key,
    ) -> ClientOutput:
        steps, eta = batches.num_steps, rate(round)

        def correct(gradient: PyTree, update: PyTree) -> PyTree:
            return jax.tree.map(lambda g, own, all_: g - own + all_, gradient, state, shared)

        def renew(own: Array, all_: Array, update: Array) -> Array:
            moved = (steps > 0) & (eta > 0)  # a schedule may end at 0
            new = own - all_ + update / jnp.where(moved, steps * eta, 1)
            return jnp.where(moved, new, own).astype(own.dtype)

        result = local_steps(training_loss(task), variables, batches, optax.sgd(eta), key=key, adjust=correct)
        control = jax.tree.map(renew, state, shared, result.update)
        return ClientOutput(result.update, result.stats, control, metrics={"train_loss": result.loss})

    return ClientAlgorithm(
        train,
        init=lambda variables: tree.zeros_like(variables.params),
        init_shared=tree.zeros_like,
        share=_follow,
    )


def _follow(shared: PyTree, before: PyTree, after: PyTree, num_clients: int) -> PyTree:
    """The mean over the population, moved by what the cohort changed."""
    return jax.tree.map(lambda c, old, new: c + jnp.sum(new - old, axis=0) / num_clients, shared, before, after)
