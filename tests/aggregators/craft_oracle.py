"""CRAFT in a few lines of NumPy, and the ways into the library that the tests of this folder share."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_geo import aggregators

SOLVERS = {"ridge": aggregators.ridge(), "spectral": aggregators.spectral()}


def unit_rows(updates):
    """U and the clients that it is made of: those with an update that is finite and not zero."""
    usable = np.isfinite(updates).all(axis=1) & (np.abs(updates) > 0).any(axis=1)
    rows = updates[usable]
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), usable


def targets(weights, usable):
    """Rho: the usable clients' weights, renormalised; equal where they are all zero."""
    kept = np.asarray(weights, float)[usable]
    return kept / kept.sum() if kept.sum() > 0 else np.full(kept.shape, 1 / len(kept))


def craft_direction(updates, weights, previous=None):
    """``ghat + pinv(U) (rho - U ghat)`` of one group in float64: ``[m, d]``, ``[m]``, ``[d]`` -> ``[d]``."""
    updates = np.asarray(updates, float)
    rows, usable = unit_rows(updates)
    if usable.sum() == 0:
        return np.zeros(updates.shape[1])
    if usable.sum() == 1:
        return updates[usable][0]
    reference = np.zeros(updates.shape[1]) if previous is None else np.asarray(previous, float)
    reference = reference / (np.linalg.norm(reference) or 1)
    basis, triangle = np.linalg.qr(rows.T)  # rows = triangle^T basis^T: a small matrix to invert
    residual = targets(weights, usable) - rows @ reference
    return reference + basis @ (np.linalg.pinv(triangle.T, rcond=1e-11) @ residual)


def cohort(seed, m, width, cosine=0.3):
    """Updates of mean pairwise cosine ``cosine`` and of very different lengths, weights, a previous direction."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=width)
    own = rng.normal(size=(m, width)) / np.sqrt(width)
    updates = np.sqrt(cosine) * common / np.linalg.norm(common) + np.sqrt(1 - cosine) * own
    updates *= 0.01 * rng.lognormal(size=(m, 1))
    weights = rng.integers(10, 200, m).astype(float)
    return updates, weights / weights.sum(), rng.normal(size=width)


@functools.cache
def compiled(solver="ridge", **options):
    """The aggregator of these options, and its update under jit."""
    aggregator = aggregators.craft(solver=SOLVERS[solver], **options)
    return aggregator, jax.jit(aggregator.update)


def direction(updates, weights, previous=None, *, dtype="float64", **options):
    """The library's direction for one round, computed in ``dtype`` and handed back as NumPy."""
    with jax.enable_x64(dtype == "float64"):
        updates, weights = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), (updates, weights))
        aggregator, update = compiled(**options)
        state = aggregator.init(jax.tree.map(lambda leaf: leaf[0], updates))
        if previous is not None:
            state = state._replace(previous=jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), previous))
        step, _ = update(updates, state, weights=weights)
        return jax.tree.map(np.asarray, step)


def two_groups(flat, cut):
    """A vector, or rows of vectors, as a tree of two modules, one of which has two leaves."""
    return {"a": {"kernel": flat[..., :1], "bias": flat[..., 1:cut]}, "b": {"kernel": flat[..., cut:]}}


def flat(tree):
    """The inverse of ``two_groups``."""
    return np.concatenate([tree["a"]["kernel"], tree["a"]["bias"], tree["b"]["kernel"]], axis=-1)
