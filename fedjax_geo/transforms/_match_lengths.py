"""A direction given the length of the clients' updates."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedjax_geo import _validate, layers, tree
from fedjax_geo.types import Array, PyTree


def match_lengths(
    inner: optax.GradientTransformation, factor: float = 1.0, *, groups: layers.Grouping = layers.module
) -> optax.GradientTransformationExtraArgs:
    """Keep an aggregator's direction, and take its length from the updates that it was made of.

    In each layer group the direction is scaled to ``factor`` times the weighted mean length of the clients'
    updates there. CRAFT's direction does not depend on these lengths: at a constant server rate it goes on moving
    by the same amount when the clients hardly move any more, and cannot settle. With this link it does.

    Args:
        inner: an aggregator, ``[m, ...]`` to ``[...]``, such as ``craft()``; its state is kept as it is, so a
            reference that it remembers has its own length.
        factor: of the mean length; above 0.
        groups: layer groups that are scaled each by its own lengths.

    Returns:
        An optax link that reads ``weights``. Updates that are not finite count as zero. To be followed by a server
        rate of order one.

    Raises:
        ValueError: if the factor is not positive.
    """
    _validate.positive("factor", factor)
    inner = optax.with_extra_args_support(inner)

    def update(
        updates: PyTree, state: PyTree, params: PyTree = None, *, weights: Any, **info: Any
    ) -> tuple[PyTree, PyTree]:
        direction, state = inner.update(updates, state, params, weights=weights, **info)
        labels = groups(direction)
        squares = tree.grouped(tree.squared_norm_rows, labels, updates)
        own = tree.grouped(lambda d: jnp.sum(jnp.square(d)), labels, direction)
        shares = tree.overall(weights)

        def scale(label: str) -> Array:
            lengths = jnp.sqrt(jnp.where(jnp.isfinite(squares[label]), squares[label], 0))
            length = jnp.sqrt(own[label])
            mean = jnp.sum(shares * lengths)
            return jnp.where(length > 0, factor * mean / jnp.where(length > 0, length, 1), 0)

        scales = {label: scale(label) for label in own}
        scaled = jax.tree.map(lambda label, d: (scales[label] * d).astype(d.dtype), labels, direction)
        return scaled, state

    return optax.GradientTransformationExtraArgs(inner.init, update)
