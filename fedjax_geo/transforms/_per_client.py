"""Optax links applied to each client's update by itself."""

from typing import Any

import jax
import optax

from fedjax_geo.types import PyTree


def per_client(link: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """A stateless optax link applied to every client's update by itself: ``[m, ...]`` -> ``[m, ...]``.

    Raises:
        ValueError: at ``init``, if the link keeps state, since a slot of the cohort is not one client.

    >>> import jax.numpy as jnp
    >>> link = per_client(optax.clip_by_global_norm(1.0))
    >>> clipped, _ = link.update(jnp.array([[3.0, 4.0], [0.3, 0.4]]), link.init(jnp.zeros(2)))
    >>> clipped.round(3).tolist()
    [[0.6..., 0.8...], [0.3..., 0.4...]]
    """

    def init(params: PyTree) -> PyTree:
        state = link.init(params)
        if jax.tree.leaves(state):
            raise ValueError(f"per_client needs a link without state, got one whose state is {state}")
        return state

    def update(updates: PyTree, state: PyTree, params: PyTree = None, **info: Any) -> tuple[PyTree, PyTree]:
        del info

        def one(client_update: PyTree) -> PyTree:
            return link.update(client_update, state, params)[0]

        return jax.vmap(one)(updates), state

    return optax.GradientTransformationExtraArgs(init, update)
