"""Norm bounding: no client's update may be longer than a bound.

Sun, Kairouz, Suresh, McMahan, 2019, "Can You Really Backdoor Federated Learning?", arXiv 1911.07963, section 4:
``g_i / max(1, ||g_i|| / M)``.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedjax_geo import _validate, tree
from fedjax_geo.aggregators._cohort import float_leaves
from fedjax_geo.types import Array, PyTree


def norm_bound(max_norm: float) -> optax.GradientTransformationExtraArgs:
    """Every client's update scaled to at most ``max_norm`` over the whole model: ``[m, ...]`` -> ``[m, ...]``.

    To be followed by an aggregator. An update that is not finite has no length to bound and becomes zero; one
    that is finite keeps its direction however long it is. Integer leaves pass unchanged.

    Args:
        max_norm: M, a Euclidean length.

    Raises:
        ValueError: if it is not positive.

    >>> link = norm_bound(1.0)
    >>> bounded, _ = link.update(jnp.array([[3.0, 4.0], [0.3, 0.4]]), link.init(jnp.zeros(2)))
    >>> bounded.round(3).tolist()
    [[0.6..., 0.8...], [0.3..., 0.4...]]
    """
    _validate.positive("max_norm", max_norm)

    def init(params: PyTree) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    def update(
        updates: PyTree, state: optax.EmptyState, params: PyTree = None, **info: Any
    ) -> tuple[PyTree, optax.EmptyState]:
        del params, info
        m = tree.num_clients(updates)
        leaves = float_leaves(updates)
        tops = [jnp.max(jnp.abs(leaf.reshape(m, -1)), axis=1, initial=0) for leaf in leaves]
        top = functools.reduce(jnp.maximum, tops)
        finite = jnp.isfinite(top)
        top = jnp.where(finite & (top > 0), top, 1)
        squares = [tree.squared_norm_rows(leaf / tree.column(top, leaf)) for leaf in leaves]
        relative = jnp.sqrt(tree.total(squares))  # norm over the largest entry, which cannot overflow
        long = finite & (relative > max_norm / top)
        factor = jnp.where(long, max_norm / jnp.where(long, relative, 1), 1)

        def bound(leaf: Array) -> Array:
            if not tree.is_float(leaf):
                return leaf
            wide = leaf.astype(top.dtype)
            shortened = wide / tree.column(top, leaf) * tree.column(factor, leaf)
            kept = jnp.where(tree.column(long, leaf), shortened, wide)
            return jnp.where(tree.column(finite, leaf), kept, 0).astype(leaf.dtype)

        return jax.tree.map(bound, updates), state

    return optax.GradientTransformationExtraArgs(init, update)
