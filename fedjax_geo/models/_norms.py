"""Normalisations to inject into a model: functions of a width that make a layer.

The layer is called with images [b, h, w, c] and with the mask [b] of the true examples, or None. Constants are
torch's: epsilon 1e-5, and running statistics that take a tenth of each new batch, with the unbiased variance.
"""

from collections.abc import Callable

import jax.numpy as jnp
from flax import nnx

from fedjax_geo import _validate
from fedjax_geo.models._group_norm import GroupNorm
from fedjax_geo.types import Array

Norm = Callable[[int, nnx.Rngs], nnx.Module]  # (width, rngs) -> layer: (x, *, mask) -> x


class BatchNorm(nnx.BatchNorm):
    """Batch normalisation over the true examples of a batch.

    The statistics are ``mean`` and ``var``. Torch's counter of batches, which nothing reads, is not kept.
    """

    def __call__(self, x: Array, use_running_average: bool | None = None, *, mask: Array | None = None) -> Array:
        """Normalised images [b, h, w, c]; in training by their own statistics, which are noted."""
        if self.use_running_average if use_running_average is None else use_running_average:
            return super().__call__(x, True)
        mask = jnp.ones(len(x), bool) if mask is None else mask
        old = self.momentum * self.var[...]
        y = super().__call__(x, False, mask=mask.reshape(-1, *(1,) * (x.ndim - 1)))
        count = jnp.sum(mask, dtype=jnp.float32) * (x[0].size // x.shape[-1])
        self.var[...] = old + (self.var[...] - old) * (count / jnp.maximum(count - 1, 1))
        return y


def group_norm(num_groups: int = 1) -> Norm:
    """Group normalisation (arXiv 1803.08494); of one group, as CRAFT (arXiv 2605.21317) has it, unless said.

    Args:
      num_groups: number of groups that share a mean and a variance; must divide every width.

    Returns:
      A norm.

    Raises:
      ValueError: if ``num_groups`` is not a positive whole number; in use, if it does not divide a width.
    """
    num_groups = _validate.at_least("num_groups", num_groups, 1)
    return lambda width, rngs: GroupNorm(width, num_groups, epsilon=1e-5, rngs=rngs)


def batch_norm(momentum: float = 0.9) -> Norm:
    """Batch normalisation (arXiv 1502.03167), heeding the mask of a padded batch.

    Args:
      momentum: what running statistics keep of themselves at each batch.

    Returns:
      A norm.

    Raises:
      ValueError: if ``momentum`` is not in [0, 1).
    """
    momentum = _validate.fraction("momentum", momentum)
    return lambda width, rngs: BatchNorm(width, momentum=momentum, epsilon=1e-5, rngs=rngs)
