"""The one local loop: every client algorithm is this loop with another gradient, start or loss."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_geo import tree
from fedjax_geo.batches import fitted
from fedjax_geo.objective import Loss
from fedjax_geo.types import Array, Batch, Batches, Key, PyTree, Variables

Optimizer = optax.GradientTransformation | Callable[[Array], optax.GradientTransformation]
Adjust = Callable[[PyTree, PyTree], PyTree]  # (gradient, update so far) -> gradient


class LocalResult(NamedTuple):
    """Where local training ended."""

    update: PyTree  # start minus end, like params
    stats: PyTree
    loss: Array  # mean over the local steps of the batch loss before each step


def moving_only(optimizer: optax.GradientTransformation, chosen: PyTree) -> optax.GradientTransformation:
    """The optimizer on the chosen leaves, a tree of bools like params; the others rest."""
    labels = jax.tree.map(lambda moves: "moves" if moves else "rests", chosen)
    return optax.partition({"moves": optimizer, "rests": optax.set_to_zero()}, labels)


def local_steps(
    loss: Loss,
    start: Variables,
    batches: Batches,
    optimizer: optax.GradientTransformation,
    *,
    key: Key,
    adjust: Adjust = lambda gradient, update: gradient,
) -> LocalResult:
    """Train one client: ``batches.num_steps`` optimizer steps from ``start``.

    The loop carries the sum of the client's own steps beside the moving parameters: subtracting two nearly
    equal models at the end would lose the update's relative precision, which CRAFT amplifies, and forming
    ``start - update`` in every step would cost one more pass over memory than carrying both.

    Args:
        loss: mean loss of a batch, with the statistics after it.
        start: parameters and statistics to start from.
        batches: the client's batches.
        optimizer: optax optimizer, started fresh.
        key: folded with the step for dropout and augmentation.
        adjust: changes each gradient; gets ``update = start - current`` parameters so far.
    """

    def step(k: Array, carry: tuple) -> tuple:
        update, params, stats, optimizer_state, loss_sum = carry

        def batch_loss(params: PyTree, batch: Batch) -> tuple[Array, PyTree]:
            return loss(Variables(params, stats), batch, jax.random.fold_in(key, k))

        differentiate = jax.value_and_grad(batch_loss, has_aux=True)
        (value, stats), gradient = fitted(differentiate, params, batches.get(k), batches.short)
        gradient = adjust(gradient, update)
        change, optimizer_state = optimizer.update(gradient, optimizer_state, params)
        update = jax.tree.map(lambda u, c: (u - c).astype(u.dtype), update, change)
        params = optax.apply_updates(params, change)
        return update, params, stats, optimizer_state, loss_sum + value.astype(loss_sum.dtype)

    dtype = jnp.result_type(*jax.tree.leaves(start.params))
    carry = (
        tree.zeros_like(start.params),
        start.params,
        start.stats,
        optimizer.init(start.params),
        jnp.zeros((), dtype),
    )
    update, _, stats, _, loss_sum = jax.lax.fori_loop(0, batches.num_steps, step, carry)
    return LocalResult(update, stats, loss_sum / jnp.maximum(batches.num_steps, 1))
