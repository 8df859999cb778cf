"""Clipping of client updates to a quantile of their own lengths.

Andrew, Thakkar, McMahan, Ramaswamy, 2021, "Differentially Private Learning with Adaptive Clipping",
arXiv 1905.03871, section 2: ``C <- C exp(-rate (b - quantile))``, b the fraction of clients not longer than C.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from fedjax_geo import _validate, tree
from fedjax_geo.transforms import _rows
from fedjax_geo.types import Array, PyTree


class ClipState(NamedTuple):
    """The bound of the next round."""

    norm: Array  # []


def check_quantile(quantile: float, initial: float, rate: float) -> None:
    """Raises ``ValueError`` for a quantile outside [0, 1], an initial bound or a rate that is not positive."""
    if not 0 <= quantile <= 1:
        raise ValueError(f"quantile must be between 0 and 1, got {quantile}")
    _validate.positive("initial", initial)
    _validate.positive("rate", rate)


def toward_quantile(norm: Array, within: Array, quantile: float, rate: float) -> Array:
    """The next bound, given the fraction of clients within the present one."""
    return norm * jnp.exp(-rate * (within - quantile)).astype(norm.dtype)


def adaptive_clip(
    quantile: float = 0.5, *, initial: float = 0.1, rate: float = 0.2
) -> optax.GradientTransformationExtraArgs:
    """Every client's update clipped to a bound that follows a quantile of their lengths: ``[m, ...]`` the same.

    To be followed by an aggregator. Updates are clipped to the present bound, then the bound moves: it grows by
    ``exp(rate * quantile)`` while nobody is within it, and settles where the quantile of the clients is. Clients
    of weight zero do not move it, nor do updates that are not finite, which pass as they are (see
    ``drop_nonfinite``). Nothing here is private: see ``private_adaptive_mean``.

    Args:
        quantile: fraction of clients that should not be clipped.
        initial: bound C of the first round.
        rate: geometric step of the bound per round.

    Raises:
        ValueError: for a quantile outside [0, 1], or an initial bound or rate that is not positive.

    >>> link = adaptive_clip(0.5, initial=1.0)
    >>> state = link.init(jnp.zeros(2))
    >>> updates = jnp.array([[3.0, 4.0], [6.0, 8.0]])
    >>> clipped, state = link.update(updates, state, weights=jnp.array([0.5, 0.5]))
    >>> jnp.linalg.norm(clipped, axis=1).round(3).tolist(), float(state.norm)
    ([1.0, 1.0], 1.105170...)
    """
    check_quantile(quantile, initial, rate)

    def init(params: PyTree) -> ClipState:
        return ClipState(_rows.scalar_like(initial, params))

    def update(
        updates: PyTree, state: ClipState, params: PyTree = None, *, weights: Any, **info: Any
    ) -> tuple[PyTree, ClipState]:
        del params, info
        norms = tree.long_norms(updates)
        counted = (tree.overall(weights) > 0) & jnp.isfinite(norms)
        number = jnp.sum(counted)
        within = jnp.sum(counted & (norms <= state.norm)) / jnp.maximum(number, 1)
        moved = toward_quantile(state.norm, within, quantile, rate)
        return tree.clip_rows(updates, state.norm), ClipState(jnp.where(number > 0, moved, state.norm))

    return optax.GradientTransformationExtraArgs(init, update)
