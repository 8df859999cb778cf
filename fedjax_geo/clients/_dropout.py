"""Clients that never answer."""

from fedjax_geo.clients._chance import DROPS_OUT, happens, valid_probability
from fedjax_geo.types import Array, Batches, ClientAlgorithm, ClientOutput, Key, PyTree, Task, Variables


def dropout(inner: ClientAlgorithm, probability: float) -> ClientAlgorithm:
    """Any client algorithm, where a client does not answer with some probability, anew each round.

    The round goes on as if that client had no examples: it has no weight and keeps its state. (Not the layer of
    that name.)

    Args:
        inner: how the client trains.
        probability: of not answering.

    Raises:
        ValueError: if it is not between 0 and 1.

    >>> import optax
    >>> from fedjax_geo.clients import local_sgd
    >>> client = dropout(local_sgd(optax.sgd(0.05)), 0.1)
    """
    valid_probability("probability", probability)

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
        out = inner.train(task, variables, shared, state, batches, round=round, key=key)
        return out._replace(answered=~happens(key, DROPS_OUT, probability) & out.answered)

    return inner._replace(train=train)
