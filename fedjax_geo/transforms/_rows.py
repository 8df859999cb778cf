"""What the links on stacked updates share: scalars of their dtype, and randomness of one link and leaf."""

import functools
import zlib

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_geo import tree
from fedjax_geo.types import Array, Key, PyTree


def scalar_like(value: float, params: PyTree) -> Array:
    """A number in the widest float dtype of the parameters, float32 at least."""
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(params) if tree.is_float(leaf)]
    return jnp.asarray(value, functools.reduce(jnp.promote_types, dtypes, jnp.dtype(jnp.float32)))


def leaf_keys(key: Key, link: str, like: PyTree) -> PyTree:
    """A key for each leaf, folded with the names of the link and of the leaf.

    Links of a round share one key. Going by the leaf's name rather than its number keeps links apart that
    ``optax.partition`` gives different leaves.
    """
    own = jax.random.fold_in(key, _number(link))
    keys = [jax.random.fold_in(own, _number(path)) for path in tree.paths(like)]
    return jax.tree.unflatten(jax.tree.structure(like), keys)


def _number(name: str) -> np.uint32:
    return np.uint32(zlib.crc32(name.encode()))
