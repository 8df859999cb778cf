"""What the adapters share: checks of parameters and the choice of arguments for a user's module."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedjax_geo.types import Array, PyTree


def floating(params: PyTree) -> PyTree:
    """``params``, if they are floating point; otherwise a ValueError that names the leaf."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            raise ValueError(f"parameters must be floating point, got {jnp.result_type(leaf)} at {name}")
    return params


def some_valid(mask: Array | None) -> Array | None:
    """``mask``, or all True in place of all False, over which a mean and its gradient would be NaN."""
    return None if mask is None else mask | ~mask.any()


def accepted(function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """The options that the function takes."""
    taken = inspect.signature(function).parameters
    return {name: value for name, value in options.items() if name in taken}
