"""What the links on stacked updates share: lengths of rows, and randomness that belongs to one link and leaf."""

import functools
import zlib

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_geo import tree
from fedjax_geo.types import Array, Key, PyTree


def column(vector: Array, leaf: Array) -> Array:
    """``[m]`` with as many axes as a leaf ``[m, ...]``, in the leaf's dtype unless it is boolean."""
    vector = vector if vector.dtype == bool else vector.astype(leaf.dtype)
    return tree.column(vector, leaf)


def scalar_like(value: float, params: PyTree) -> Array:
    """A number in the widest float dtype of the parameters, float32 at least."""
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(params) if tree.is_float(leaf)]
    return jnp.asarray(value, functools.reduce(jnp.promote_types, dtypes, jnp.dtype(jnp.float32)))


def lengths(updates: PyTree) -> Array:
    """Euclidean norm of each client's float leaves -> ``[m]``; not finite where an update is not.

    Squares are taken relative to the largest entry, so that long updates do not overflow.
    """
    m = tree.num_clients(updates)
    rows = [tree.wide(leaf.reshape(m, -1)) for leaf in jax.tree.leaves(updates) if tree.is_float(leaf)]
    top = functools.reduce(jnp.maximum, [jnp.max(jnp.abs(row), axis=1, initial=0) for row in rows])
    unit = jnp.where(jnp.isfinite(top) & (top > 0), top, 1)
    return unit * jnp.sqrt(tree.total([jnp.sum(jnp.square(row / unit[:, None]), axis=1) for row in rows]))


def clip(updates: PyTree, norms: Array, bound: Array) -> PyTree:
    """Float leaves of rows longer than the bound, scaled down to it; the others stay as they are."""
    long = norms > bound
    factor = jnp.where(long, bound / jnp.where(long, norms, 1), 1)

    def shorten(leaf: Array) -> Array:
        if not tree.is_float(leaf):
            return leaf
        return jnp.where(column(long, leaf), leaf * column(factor, leaf), leaf)

    return jax.tree.map(shorten, updates)


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
