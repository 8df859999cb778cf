"""Small linear algebra over a stack of systems."""

from collections.abc import Callable

import jax

from fedjax_geo.types import PyTree


def each(function: Callable[..., PyTree], *stacks: PyTree) -> PyTree:
    """``function`` of every system, leaves ``[g, ...]``: all at once, but one after another on a CPU.

    A CPU solves a batch one by one anyway. Batched LAPACK calls of several CPU devices in one process can wait for
    one another for ever (seen with JAX 0.10.2: two devices, ``jnp.linalg.solve`` of three 100 x 100 systems).
    """
    return jax.lax.platform_dependent(
        *stacks,
        cpu=lambda *stacks: jax.lax.map(lambda one: function(*one), stacks),
        default=jax.vmap(function),
    )
