"""A random permutation that is evaluated position by position.

Ragged clients under one compiled program need permutations of ``n`` items where ``n`` is a traced number.
Sorting random keys would cost the capacity of the largest client for every client and epoch; the
swap-or-not shuffle (Hoang, Morris, Rogaway 2012) costs a few integer operations for each position asked for.
"""

import jax
import jax.numpy as jnp

from fedjax_geo.types import Array, Key

_ROUNDS = 24  # an item stays where it was in all of them with probability 2^-24


def _scramble(x: Array) -> Array:
    """A fixed mixing of 32 bits, xor-shifts and odd multiplications, whose high bits are good coins."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    return (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)


def permuted(key: Key, positions: Array, n: Array | int) -> Array:
    """Where a random permutation of ``0..n-1`` sends the given positions.

    Args:
        key: chooses the permutation.
        positions: int ``[...]``, each in ``0..n-1``.
        n: int scalar, may be traced; the number of items, at least 1.

    Returns:
        int32 array of the shape of ``positions``; distinct positions get distinct values.

    >>> sorted(permuted(jax.random.key(0), jnp.arange(5), 5).tolist())
    [0, 1, 2, 3, 4]
    """
    if isinstance(n, int) and n == 1:  # nothing to shuffle, and XLA does not compile the folded constants
        return jnp.zeros_like(positions, jnp.int32)
    n = jnp.asarray(n).astype(jnp.uint32)
    pivots, salts = jax.random.bits(key, (2, _ROUNDS), jnp.uint32)
    pivots = pivots % n
    x = positions.astype(jnp.uint32)
    for i in range(_ROUNDS):  # unrolled: one fused kernel instead of a loop of tiny ones
        pivot = pivots[i]
        partner = jnp.where(x <= pivot, pivot - x, pivot + n - x)  # pivot - x modulo n, an involution
        swap = _scramble(jnp.maximum(x, partner) ^ salts[i]) >> 31
        x = jnp.where(swap == 1, partner, x)
    return x.astype(jnp.int32)
