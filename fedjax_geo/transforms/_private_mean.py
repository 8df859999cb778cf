"""Central differential privacy at the level of clients: clip, add, disturb, divide.

McMahan, Ramage, Talwar, Zhang, 2018, "Learning Differentially Private Recurrent Language Models", arXiv
1710.06963; the moving bound is that of Andrew, Thakkar, McMahan, Ramaswamy, 2021, arXiv 1905.03871, algorithm 1.

The clipped sum has sensitivity C to one client coming or going. Noise of standard deviation
``noise_multiplier * C`` on it is ``noise_multiplier * C / m`` on the mean. The divisor m is the size of the
cohort, fixed by the round. It is neither the number that answered nor a sum of weights, which would depend on the
data.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedjax_geo import _validate, tree
from fedjax_geo.transforms import _rows
from fedjax_geo.transforms._adaptive_clip import ClipState, check_quantile, toward_quantile
from fedjax_geo.types import Aggregator, Array, Key, PyTree


def _noisy_mean(updates: PyTree, norms: Array, bound: Array, noise_multiplier: float, key: Key) -> PyTree:
    m = tree.num_clients(updates)
    finite = jnp.isfinite(norms)
    clipped = tree.clip_rows(updates, bound)

    def mean(leaf: Array, key: Key) -> Array:
        if not tree.is_float(leaf):
            return jnp.zeros_like(leaf[0])
        wide = tree.wide(leaf)
        total = jnp.sum(jnp.where(tree.column(finite, wide), wide, 0), axis=0)
        if noise_multiplier:
            deviation = (noise_multiplier * bound).astype(wide.dtype)
            total += deviation * jax.random.normal(key, total.shape, wide.dtype)
        return (total / m).astype(leaf.dtype)

    return jax.tree.map(mean, clipped, _rows.leaf_keys(key, "private_mean", clipped))


def private_mean(clip_norm: float, noise_multiplier: float) -> Aggregator:
    """The mean of clipped updates with Gaussian noise: ``[m, ...]`` to ``[...]``.

    The round's weights are **not** used, every client of the cohort counts ``1 / m``, since a weight by examples
    would make the sensitivity depend on the data. A client that does not answer, or whose update is not finite,
    adds zero. What the privacy of the whole run is, say ``epsilon`` and ``epsilon_fixed_cohort``.

    Private is what comes out here, and all that is computed from it. Model statistics, which the round averages
    by its weights without noise, and the metrics of a round are not: use a model without batch statistics.

    Args:
        clip_norm: C, largest Euclidean length of an update over the whole model.
        noise_multiplier: standard deviation of the noise on the sum, in units of C; 0 for clipping only.

    Raises:
        ValueError: if clip_norm is not positive or noise_multiplier negative.

    >>> link = private_mean(1.0, 0.0)
    >>> updates, key = jnp.array([[3.0, 4.0], [0.0, 0.4]]), jax.random.key(0)
    >>> mean, _ = link.update(updates, link.init(jnp.zeros(2)), key=key)
    >>> mean.round(3).tolist()
    [0.3..., 0.6...]
    """
    _validate.positive("clip_norm", clip_norm)
    _validate.non_negative("noise_multiplier", noise_multiplier)

    def init(params: PyTree) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    def update(
        updates: PyTree, state: optax.EmptyState, params: PyTree = None, *, key: Key, **info: Any
    ) -> tuple[PyTree, optax.EmptyState]:
        del params, info
        norms = tree.long_norms(updates)
        return _noisy_mean(updates, norms, jnp.asarray(clip_norm, norms.dtype), noise_multiplier, key), state

    return Aggregator(init, update)


def private_adaptive_mean(
    noise_multiplier: float,
    *,
    quantile: float = 0.5,
    initial: float = 0.1,
    rate: float = 0.2,
    count_noise: float | None = None,
) -> Aggregator:
    """``private_mean`` with the bound of ``adaptive_clip``, which then is private too.

    One budget pays for both: with noise of standard deviation ``count_noise`` on the number of clients within
    the bound, counted as ``+-1/2`` each, the updates get ``(z^-2 - (2 count_noise)^-2)^(-1/2)``, a little more
    than ``z = noise_multiplier``, with which the run is accounted for.

    Args:
        noise_multiplier: z, for updates and count together; 0 for no noise on either.
        quantile: fraction of clients that should not be clipped.
        initial: bound C of the first round.
        rate: geometric step of the bound per round.
        count_noise: default ``m / 20``, as in the paper; more than ``z / 2``.

    Raises:
        ValueError: for arguments out of range, and while traced if count_noise is too small.
    """
    _validate.non_negative("noise_multiplier", noise_multiplier)
    check_quantile(quantile, initial, rate)
    if count_noise is not None:
        _validate.non_negative("count_noise", count_noise)

    def split_noise(m: int) -> tuple[float, float]:
        """Noise multiplier of the updates, and noise of the count."""
        if noise_multiplier == 0:
            return 0.0, 0.0
        of_count = m / 20 if count_noise is None else count_noise
        if 2 * of_count <= noise_multiplier:
            raise ValueError(
                f"count_noise must be above half of noise_multiplier={noise_multiplier}, got {of_count} for a "
                f"cohort of {m}: nothing of the budget would remain for the updates"
            )
        return (noise_multiplier**-2 - (2 * of_count) ** -2) ** -0.5, of_count

    def init(params: PyTree) -> ClipState:
        return ClipState(_rows.scalar_like(initial, params))

    def update(
        updates: PyTree, state: ClipState, params: PyTree = None, *, num_examples: Array, key: Key, **info: Any
    ) -> tuple[PyTree, ClipState]:
        del params, info
        m = tree.num_clients(updates)
        of_updates, of_count = split_noise(m)
        norms = tree.long_norms(updates)
        mean = _noisy_mean(updates, norms, state.norm, of_updates, key)
        vote = jnp.where(norms <= state.norm, 0.5, -0.5)  # a length that is not finite is not within
        votes = jnp.sum(jnp.where(num_examples > 0, vote, 0))
        if of_count:
            votes += of_count * jax.random.normal(_rows.leaf_keys(key, "count", votes), dtype=votes.dtype)
        return mean, ClipState(toward_quantile(state.norm, 0.5 + votes / m, quantile, rate))

    return Aggregator(init, update)
