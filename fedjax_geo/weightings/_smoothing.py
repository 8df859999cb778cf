"""Smoothing of weights that differ by parameter tensor (FedVG, 2026, arXiv 2602.21399; off by default there)."""

from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp

from fedjax_geo import _validate, tree
from fedjax_geo.types import Array, PyTree


def _renormalize(rows: Array) -> Array:
    whole = jnp.sum(rows, axis=1, keepdims=True)
    return rows / jnp.where(whole > 0, whole, 1)


def _on_rows(smooth: Callable[[Array, list[str]], Array]) -> Callable[[PyTree], PyTree]:
    def apply(weights: PyTree) -> PyTree:
        leaves, structure = jax.tree.flatten(weights)
        rows = _renormalize(smooth(jnp.stack(leaves), tree.paths(weights)))
        return jax.tree.unflatten(structure, list(rows))

    return apply


def moving_average(window: int = 3) -> Callable[[PyTree], PyTree]:
    """Mean over neighbouring tensors in flattening order (sorted by name); edge rows are repeated.

    Args:
        window: odd number of tensors.

    Raises:
        ValueError: if the window is even or below 1.
    """
    if _validate.at_least("window", window, 1) % 2 == 0:
        raise ValueError(f"window must be odd, got {window}")

    def smooth(rows: Array, names: list[str]) -> Array:
        del names
        count, half = rows.shape[0], window // 2
        reach = jnp.arange(count)[:, None] + jnp.arange(-half, half + 1)[None, :]
        return jnp.mean(rows[jnp.clip(reach, 0, count - 1)], axis=1)

    return _on_rows(smooth)


def graph_average(neighbours: Mapping[str, Sequence[str]]) -> Callable[[PyTree], PyTree]:
    """Own row plus the neighbours' rows, divided by one plus the number of neighbours listed.

    Args:
        neighbours: parameter name (``conv1/kernel``) -> names of its neighbours. A listed name without a
            weight of its own still counts in the divisor, as in the authors' code; the rows are renormalised.
    """

    def smooth(rows: Array, names: list[str]) -> Array:
        position = {name: i for i, name in enumerate(names)}
        mixing = jnp.array(
            [
                [float(i == j or other in neighbours.get(name, ())) for j, other in enumerate(names)]
                for i, name in enumerate(names)
            ],
            rows.dtype,
        )
        listed = jnp.array([1.0 + len(neighbours.get(name, ())) for name in position], rows.dtype)
        return jnp.matmul(mixing, rows, precision=jax.lax.Precision.HIGHEST) / listed[:, None]

    return _on_rows(smooth)
