"""Clients that do not finish their work in time, as in the experiments of FedProx.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, 2020, arXiv 1812.06127.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fedjax_geo import _validate
from fedjax_geo.clients._chance import HOW_MUCH, STRAGGLES, happens, valid_probability
from fedjax_geo.types import Array, Batches, ClientAlgorithm, ClientOutput, Key, PyTree, Task, Variables


def straggler(
    inner: ClientAlgorithm, probability: float, fraction: float | Callable[[Key], Array] = 0.5
) -> ClientAlgorithm:
    """Any client algorithm, where a client stops early with some probability, anew each round.

    A straggler does ``max(1, round(fraction K))`` of its K local steps and sends what it has; everything inside,
    SCAFFOLD's division and FedNova's counts included, sees the steps that were taken.

    Args:
        inner: how the client trains.
        probability: of straggling.
        fraction: share of the work done, in (0, 1], or a function of a key that draws it, such as
            ``jax.random.uniform``.

    Raises:
        ValueError: if probability or fraction is out of range.

    >>> import optax
    >>> from fedjax_geo.clients import local_sgd
    >>> client = straggler(local_sgd(optax.sgd(0.05)), 0.5, fraction=jax.random.uniform)
    """
    valid_probability("probability", probability)
    if not callable(fraction):
        _validate.positive("fraction", valid_probability("fraction", fraction))

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
        share = fraction(jax.random.fold_in(key, HOW_MUCH)) if callable(fraction) else fraction
        steps = jnp.clip(jnp.round(share * batches.num_steps).astype(jnp.int32), 1, None)
        late = happens(key, STRAGGLES, probability)
        steps = jnp.where(late, jnp.minimum(steps, batches.num_steps), batches.num_steps)
        shortened = batches._replace(num_steps=steps)
        out = inner.train(task, variables, shared, state, shortened, round=round, key=key)
        return out._replace(num_steps=steps if out.num_steps is None else out.num_steps)

    return inner._replace(train=train)
