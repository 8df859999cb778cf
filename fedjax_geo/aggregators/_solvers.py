"""Solving the symmetric, possibly singular systems that the constraints of CRAFT lead to.

A solver maps ``(matrix [m, m], right side [m], cutoff [])`` to ``y [m]``, close to ``pinv(matrix) @ right side``.
``cutoff`` is the relative size below which the authors' code takes a singular value of U for zero; the matrix is
``U U^T``, so its eigenvalues are the squares.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.linalg import lu_factor, lu_solve

from fedjax_geo import _validate
from fedjax_geo.types import Array

Solver = Callable[[Array, Array, Array], Array]
_HIGHEST = jax.lax.Precision.HIGHEST


def _times(matrix: Array, vector: Array) -> Array:
    return jnp.matmul(matrix, vector, precision=_HIGHEST)


def ridge(delta: float | None = None, steps: int = 3) -> Solver:
    """Iterated Tikhonov refinement: equal to the pseudo-inverse where the system is well posed, smooth elsewhere.

    With ``A = K + delta I`` the right side is first cleared of what K cannot reach,
    ``r <- r - (delta A^-1)^steps r``, then refined, ``y <- y + A^-1 (r - K y)``, ``steps`` times. An
    eigenvalue l of K is inverted as ``F^2 / l`` with ``F = 1 - (delta / (l + delta))^steps``, which is
    ``1 / l`` for l well above delta and goes smoothly to 0 with l. Hard cut-offs are discontinuous: two runs
    that differ by rounding can fall on either side.

    Args:
        delta: ridge relative to the largest diagonal entry; default about a third of the square root of the
            machine epsilon (1e-4 in float32).
        steps: refinement steps of each of the two phases.

    Raises:
        ValueError: if delta is not positive or steps is below 1.
    """
    if delta is not None:
        _validate.positive("delta", delta)
    _validate.at_least("steps", steps, 1)

    def solve(matrix: Array, right: Array, cutoff: Array) -> Array:
        del cutoff
        relative = 0.3 * float(jnp.finfo(matrix.dtype).eps) ** 0.5 if delta is None else delta
        largest = jnp.max(jnp.diagonal(matrix))
        ridge = relative * jnp.where(largest > 0, largest, 1)
        factor = lu_factor(matrix + ridge * jnp.eye(len(matrix), dtype=matrix.dtype))

        def inverse(b: Array) -> Array:
            return lu_solve(factor, b)

        def times(count: int, function: Callable[[Array], Array], start: Array) -> Array:
            return jax.lax.fori_loop(0, count, lambda _, value: function(value), start)

        reachable = right - times(steps, lambda b: ridge * inverse(b), right)
        return times(steps, lambda y: y + inverse(reachable - _times(matrix, y)), jnp.zeros_like(right))

    return solve


def spectral(rtol: float | None = None) -> Solver:
    """Truncated eigendecomposition, the rank rule of the authors' code.

    Keeps eigenvalues above ``max(rtol^2, m * eps)`` of the largest; below that a Gram matrix cannot tell
    a singular value from rounding.

    Args:
        rtol: relative cut-off on the singular values of U; default the one handed in by the aggregator,
            ``max(usable clients, group width) * eps``.

    Raises:
        ValueError: if rtol is negative or not finite.
    """
    if rtol is not None:
        _validate.non_negative("rtol", rtol)

    def solve(matrix: Array, right: Array, cutoff: Array) -> Array:
        limit = cutoff if rtol is None else jnp.full_like(cutoff, rtol)
        values, vectors = jnp.linalg.eigh(matrix)
        smallest = jnp.maximum(limit**2, len(matrix) * jnp.finfo(matrix.dtype).eps) * jnp.max(jnp.abs(values))
        keep = values > smallest
        inverses = jnp.where(keep, 1 / jnp.where(keep, values, 1), 0)
        return _times(vectors, inverses * _times(vectors.mT, right))

    return solve
