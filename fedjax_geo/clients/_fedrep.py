"""FedRep: a head of one's own on a shared body, trained one after the other.

Collins, Hassani, Mokhtari, Shakkottai, 2021, "Exploiting Shared Representations for Personalized Federated
Learning", arXiv 2102.07078.
"""

import jax
import jax.numpy as jnp

from fedjax_geo import _validate, tree
from fedjax_geo.clients._keep_local import keep_local, module_named
from fedjax_geo.clients._local import LocalResult, Optimizer, local_steps, moving_only
from fedjax_geo.objective import training_loss
from fedjax_geo.types import Array, Batches, ClientAlgorithm, ClientOutput, Key, PyTree, Task, Variables


def fedrep(optimizer: Optimizer, head: str, head_share: float = 0.5) -> ClientAlgorithm:
    """A client gives the first of its K steps to its head, body fixed, and the others to the body, head fixed.

    The head stays with the client as in ``fedper``. The paper's ten epochs for the head and one for the body are
    11 epochs of local work with a share of 10/11.

    Args:
        optimizer: of both parts, started fresh for each, as in ``local_sgd``.
        head: name of the module that stays, such as ``"fc3"``.
        head_share: share of the steps that train the head, rounded to whole steps; the body has at least one.

    Raises:
        ValueError: if the share is not in [0, 1) or the optimizer's first step is not finite.

    >>> import optax
    >>> client = fedrep(optax.sgd(0.05), head="fc3")
    """
    by_round = _validate.optimizer("optimizer", optimizer)
    _validate.fraction("head_share", head_share)
    selection = module_named(head)

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
        is_head = selection(variables).params
        steps = batches.num_steps
        for_head = jnp.round(head_share * steps).astype(jnp.int32)
        for_head = jnp.clip(for_head, 0, jnp.maximum(steps - 1, 0))
        head_key, body_key = jax.random.split(key)

        def part(start: Variables, trains_head: bool, batches: Batches, key: Key) -> LocalResult:
            chosen = jax.tree.map(lambda head: head == trains_head, is_head)
            only = moving_only(by_round(round), chosen)
            return local_steps(training_loss(task), start, batches, only, key=key)

        head = part(variables, True, batches._replace(num_steps=for_head), head_key)
        middle = Variables(tree.subtract(variables.params, head.update), head.stats)
        rest = batches._replace(get=lambda k: batches.get(for_head + k), num_steps=steps - for_head)
        body = part(middle, False, rest, body_key)
        loss = (head.loss * for_head + body.loss * (steps - for_head)) / jnp.maximum(steps, 1)
        return ClientOutput(tree.add(head.update, body.update), body.stats, state, metrics={"train_loss": loss})

    return keep_local(ClientAlgorithm(train), selection)
