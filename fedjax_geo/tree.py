"""Arithmetic on trees along the client axis.

A *stacked* tree has leaves ``[m, ...]``. Sums that feed a linear solve run at the highest matmul precision:
on an accelerator the float32 default is a shorter format.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fedjax_geo.types import Array, PyTree

_HIGHEST = jax.lax.Precision.HIGHEST


def num_clients(stacked: PyTree) -> int:
    """The common leading axis m of all leaves.

    Raises:
        ValueError: if there is no leaf, or the leaves disagree.
    """
    sizes = {leaf.shape[0] if leaf.ndim else -1 for leaf in jax.tree.leaves(stacked)}
    if len(sizes) != 1 or -1 in sizes:
        raise ValueError(f"stacked leaves need one common leading client axis, got lengths {sorted(sizes)}")
    return sizes.pop()


def _rows(leaf: Array) -> Array:
    return leaf.reshape(leaf.shape[0], -1)


def column(vector: Array, leaf: Array) -> Array:
    """``[m]`` with as many axes as a leaf ``[m, ...]``."""
    return vector.reshape(vector.shape + (1,) * (leaf.ndim - 1))


def is_float(leaf: Array) -> bool:
    """Whether a leaf holds floating-point numbers, the only ones that are averaged or projected."""
    return jnp.issubdtype(leaf.dtype, jnp.inexact)


def float_leaves(tree: PyTree) -> list[Array]:
    """The floating-point leaves, in float32 or wider."""
    return [wide(leaf) for leaf in jax.tree.leaves(tree) if is_float(leaf)]


def like_params(stacked: PyTree, floats: Sequence[Array]) -> PyTree:
    """Float leaves ``[...]`` put back into a tree like params, given a stacked one; integer leaves get zero."""
    remaining = iter(floats)

    def leaf(stacked: Array) -> Array:
        return next(remaining).astype(stacked.dtype) if is_float(stacked) else jnp.zeros_like(stacked[0])

    return jax.tree.map(leaf, stacked)


def spread(weights: Any, tree: PyTree) -> PyTree:
    """Client weights for each leaf of a tree.

    Args:
        weights: ``[m]``, the same for every leaf, or a tree of ``[m]`` that has a leaf of the same path for each
            of ``tree``; it may have more, as where ``optax.partition`` hands a link some of the leaves.
        tree: what is weighted.

    Returns:
        A tree of ``[m]`` like ``tree``.
    """
    if jax.tree_util.all_leaves([weights]):
        return jax.tree.map(lambda _: weights, tree)
    named = dict(zip(paths(weights), jax.tree.leaves(weights), strict=True))
    return jax.tree.unflatten(jax.tree.structure(tree), [named[path] for path in paths(tree)])


def countable(weights: Any, counted: Array) -> Any:
    """Weights with zero in place of what does not count or is not a number above zero."""
    return jax.tree.map(lambda w: jnp.where(counted & jnp.isfinite(w) & (w > 0), w, 0), weights)


def normalize(weights: Any, counted: Array) -> Any:
    """Client weights scaled to sum to one over the clients that count; the others get exactly zero.

    Args:
        weights: ``[m]``, or a tree of ``[m]``; what is not a number above zero counts as zero.
        counted: bool ``[m]``, for example "has examples".

    Returns:
        The same structure; all zero where nothing counts.

    >>> normalize(jnp.array([1.0, 3.0, 4.0]), jnp.array([True, True, False])).tolist()
    [0.25, 0.75, 0.0]
    """
    return jax.tree.map(lambda w: over(w, jnp.sum(w)), countable(weights, counted))


def over(value: Array, whole: Array) -> Array:
    """``value / whole``, and 0 where the whole is not above 0."""
    return jnp.where(whole > 0, value / jnp.where(whole > 0, whole, 1), 0)


def scale(weights: Any, tree: PyTree) -> PyTree:
    """``w x`` for one client, in float32 at least: a scalar, or a tree like ``tree`` of scalars."""
    return jax.tree.map(lambda w, leaf: w * wide(leaf), spread(weights, tree), tree)


def overall(weights: Any) -> Array:
    """One weight per client ``[m]``: the mean over the leaves where weights differ by leaf."""
    leaves = jax.tree.leaves(weights)
    return functools.reduce(jnp.add, leaves) / len(leaves)


def weighted_mean(weights: Any, stacked: PyTree) -> PyTree:
    """``sum_i w_i x_i`` per leaf, for weights that sum to one.

    Clients of weight zero are left out by selection, so that whatever they hold (NaN included) does not
    matter. Integer leaves are not averaged: their result is zero, which as an update keeps the old value.

    Args:
        weights: ``[m]``, or a tree like ``stacked`` of ``[m]``.
        stacked: leaves ``[m, ...]``.

    Returns:
        Leaves ``[...]`` of unchanged dtype.

    >>> weighted_mean(jnp.array([0.25, 0.75]), {"w": jnp.array([[0.0], [4.0]])})
    {'w': Array([3.], dtype=float32)}
    """
    pairs = zip(*map(jax.tree.leaves, (spread(weights, stacked), stacked)), strict=True)
    kept = [(w, wide(leaf)) for w, leaf in pairs if is_float(leaf)]
    means = combine([w.astype(leaf.dtype) for w, leaf in kept], [leaf for _, leaf in kept])
    return like_params(stacked, means)


def average_stats(weights: Array, stacked: PyTree) -> PyTree:
    """Model statistics of a cohort: floating-point leaves by weighted mean, counters by their maximum."""

    def merge(mean: Array, leaf: Array) -> Array:
        if is_float(leaf):
            return mean
        return jnp.max(jnp.where(column(weights, leaf) == 0, leaf.min(0, keepdims=True), leaf), axis=0)

    return jax.tree.map(merge, weighted_mean(weights, stacked), stacked)


def dot_rows(stacked: Array, single: Array) -> Array:
    """``<x_i, z>`` for each client of one leaf: ``[m, ...]``, ``[...]`` -> ``[m]``."""
    return jnp.matmul(_rows(wide(stacked)), wide(single).reshape(-1), precision=_HIGHEST)


def gram_rows(stacked: Array) -> Array:
    """``<x_i, x_j>`` of one leaf: ``[m, ...]`` -> ``[m, m]``."""
    return cross_rows(stacked, stacked)


def cross_rows(a: Array, b: Array) -> Array:
    """``<x_i, z_j>`` of one leaf: ``[m, ...]``, ``[k, ...]`` -> ``[m, k]``."""
    return jnp.matmul(_rows(a), _rows(b).T, precision=_HIGHEST)


def combine(coefficients: Sequence[Array], stacked: Sequence[Array]) -> list[Array]:
    """``sum_i c_i x_i`` leaf by leaf at full precision: ``[m]``, ``[m, ...]`` -> ``[...]`` for each.

    Rows of coefficient zero are left out by selection, so what they hold (NaN included) does not matter. The
    selection is slower than a plain product, so it is done only where one is not finite.
    """
    pairs = [(c, _rows(leaf)) for c, leaf in zip(coefficients, stacked, strict=True)]

    def selected() -> list[Array]:  # as a sum, which is one pass over the rows; a product would copy them first
        return [jnp.sum(jnp.where(c[:, None] == 0, 0, c[:, None] * x), axis=0) for c, x in pairs]

    plain = [jnp.matmul(c, x, precision=_HIGHEST) for c, x in pairs]
    combined = jax.lax.cond(is_finite(plain), lambda: plain, selected)
    return [x.reshape(leaf.shape[1:]) for x, leaf in zip(combined, stacked, strict=True)]


def combine_rows(coefficients: Array, stacked: Array) -> Array:
    """``combine`` of one leaf: ``[m]``, ``[m, ...]`` -> ``[...]``."""
    return combine([coefficients], [stacked])[0]


def squared_norm_rows(stacked: Array) -> Array:
    """``||x_i||^2`` of one leaf: ``[m, ...]`` -> ``[m]``."""
    return jnp.sum(jnp.square(_rows(wide(stacked))), axis=1)


def total(terms: Sequence[Array]) -> Array:
    """Sum of per-leaf results."""
    return functools.reduce(jnp.add, terms)


def gram(stacked: PyTree) -> Array:
    """Gram matrix ``<x_i, x_j>`` over whole trees: leaves ``[m, ...]`` -> ``[m, m]``."""
    return total([gram_rows(leaf) for leaf in jax.tree.leaves(stacked)])


def dots(stacked: PyTree, single: PyTree) -> Array:
    """``<x_i, z>`` over whole trees -> ``[m]``."""
    return total([dot_rows(a, b) for a, b in zip(*map(jax.tree.leaves, (stacked, single)), strict=True)])


def norms(stacked: PyTree) -> Array:
    """Euclidean norm of each client's whole tree -> ``[m]``."""
    return jnp.sqrt(total([squared_norm_rows(leaf) for leaf in jax.tree.leaves(stacked)]))


def _scaled_norms(stacked: PyTree) -> tuple[Array, Array]:
    """Largest magnitude of each client's float leaves, and its norm over that, neither of which overflows.

    A client without a largest magnitude to divide by, zero or not finite, gets 1.
    """
    num_clients(stacked)
    leaves = float_leaves(stacked)
    top = functools.reduce(jnp.maximum, [jnp.max(jnp.abs(_rows(leaf)), axis=1, initial=0) for leaf in leaves])
    top = jnp.where(jnp.isfinite(top) & (top > 0), top, 1)
    return top, jnp.sqrt(total([squared_norm_rows(leaf / column(top, leaf)) for leaf in leaves]))


def long_norms(stacked: PyTree) -> Array:
    """``norms`` of the float leaves, also where their squares would overflow; not finite where a client is not."""
    top, relative = _scaled_norms(stacked)
    return top * relative


def clip_rows(stacked: PyTree, bound: Array | float) -> PyTree:
    """Float leaves of clients whose norm is above the bound, scaled down to it, however long they are.

    The others stay as they are, those that are not finite included.
    """
    top, relative = _scaled_norms(stacked)
    long = jnp.isfinite(relative) & (relative > bound / top)
    factor = jnp.where(long, bound / jnp.where(long, relative, 1), 1)

    def shorten(leaf: Array) -> Array:
        if not is_float(leaf):
            return leaf
        short = wide(leaf) / column(top, leaf) * column(factor, leaf)
        return jnp.where(column(long, leaf), short.astype(leaf.dtype), leaf)

    return jax.tree.map(shorten, stacked)


def norm(single: PyTree) -> Array:
    """Euclidean norm of one tree."""
    return jnp.sqrt(total([jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(single)]))


def wide(leaf: Array) -> Array:
    """The leaf, of whatever type, in float32 at least, for sums that a shorter format cannot hold."""
    return leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32))


def is_finite(tree: PyTree) -> Array:
    """Whether all floating-point numbers of a tree are finite -> bool scalar; true for an empty tree."""
    leaves = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree) if is_float(leaf)]
    return functools.reduce(jnp.logical_and, leaves, jnp.ones((), bool))


def finite_clients(stacked: PyTree) -> Array:
    """Which clients hold only finite numbers -> bool ``[m]``."""
    leaves = [leaf for leaf in jax.tree.leaves(stacked) if is_float(leaf)]
    return functools.reduce(jnp.logical_and, [jnp.all(jnp.isfinite(_rows(x)), axis=1) for x in leaves])


def select(condition: Array, yes: PyTree, no: PyTree) -> PyTree:
    """``yes`` where the scalar condition holds, else ``no``, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def take(stacked: PyTree, index: Array) -> PyTree:
    """Rows of every leaf."""
    return jax.tree.map(lambda leaf: leaf[index], stacked)


def subtract(a: PyTree, b: PyTree) -> PyTree:
    """``a - b`` leaf by leaf."""
    return jax.tree.map(jnp.subtract, a, b)


def add(a: PyTree, b: PyTree) -> PyTree:
    """``a + b`` leaf by leaf."""
    return jax.tree.map(jnp.add, a, b)


def zeros_like(tree: PyTree) -> PyTree:
    """Zeros of the same shapes and dtypes."""
    return jax.tree.map(jnp.zeros_like, tree)


def paths(tree: PyTree) -> list[str]:
    """Name of each leaf, ``conv1/kernel``, in flattening order."""
    return [
        jax.tree_util.keystr(path, simple=True, separator="/")
        for path, _ in jax.tree_util.tree_leaves_with_path(tree)
    ]


def grouped(per_leaf: Callable[..., Array], labels: PyTree, *trees: PyTree) -> dict[str, Array]:
    """Sum of ``per_leaf(*leaves)`` over the leaves of each layer group.

    Args:
        per_leaf: function of one leaf of each tree.
        labels: tree of strings like the trees.
        *trees: trees of one structure.

    Returns:
        Label -> sum, labels in sorted order.
    """
    terms: dict[str, list[Array]] = {}
    for label, *leaves in zip(*map(jax.tree.leaves, (labels, *trees)), strict=True):
        terms.setdefault(label, []).append(per_leaf(*leaves))
    return {label: total(terms[label]) for label in sorted(terms)}
