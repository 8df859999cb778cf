"""Norm bounding: no client's update may be longer than a bound.

Sun, Kairouz, Suresh, McMahan, 2019, "Can You Really Backdoor Federated Learning?", arXiv 1911.07963, section 4:
``g_i / max(1, ||g_i|| / M)``.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedjax_geo import _validate, tree
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
        finite = tree.finite_clients(updates)

        def bound(leaf: Array) -> Array:
            return jnp.where(tree.column(finite, leaf), leaf, 0) if tree.is_float(leaf) else leaf

        return jax.tree.map(bound, tree.clip_rows(updates, max_norm)), state

    return optax.GradientTransformationExtraArgs(init, update)
