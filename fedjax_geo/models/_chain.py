"""Equal modules, one after another."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from fedjax_geo.types import Array, PyTree

_FEW = 3  # so many are not worth a loop


def chain(modules: Sequence[nnx.Module], x: Array, *args: Any, loop: bool = True) -> Array:
    """Passes x through modules of one structure; more than three as one loop, which compiles as one of them.

    Each module keeps its own parameters, and gets its own new batch statistics.

    Args:
      modules: called ``module(x, *args)``, and must return what is shaped as x.
      x: input of the first.
      *args: further arguments, the same for all.
      loop: whether there may be a loop.

    Returns:
      Output of the last.
    """
    if not loop or len(modules) <= _FEW:
        for module in modules:
            x = module(x, *args)
        return x
    graphs, states = zip(*map(nnx.split, modules), strict=True)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)

    def step(x: Array, state: PyTree) -> tuple[Array, PyTree]:
        module = nnx.merge(graphs[0], state)
        return module(x, *args), nnx.state(module, nnx.BatchStat)

    x, stats = jax.lax.scan(step, x, stacked)
    for i, module in enumerate(modules):
        nnx.update(module, jax.tree.map(lambda leaf, i=i: leaf[i], stats))
    return x
