"""Group normalisation (Wu and He, 2018, arXiv 1803.08494) with a gradient that reads each image twice.

Everything its gradient needs follows from two sums over the pixels of each image and channel; autodiff takes more
passes over memory, which is what a small convolutional network waits for.
"""

import functools

import jax
import jax.numpy as jnp
from flax import nnx

from fedjax_geo.types import Array


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def group_normalize(x: Array, scale: Array, bias: Array, num_groups: int, epsilon: float) -> Array:
    """``(x - mean) / sqrt(var + epsilon) * scale + bias`` with mean and variance of each image and group.

    Args:
      x: images [b, h, w, c].
      scale: [c].
      bias: [c].
      num_groups: of channels; divides c.
      epsilon: added to the variance.

    Returns:
      Images [b, h, w, c].

    >>> x = jnp.array([1.0, 3.0]).reshape(1, 1, 1, 2)
    >>> group_normalize(x, jnp.ones(2), jnp.zeros(2), 1, 0.0).ravel()
    Array([-1.,  1.], dtype=float32)
    """
    return _normalize(x, scale, bias, num_groups, epsilon)[0]


def _normalize(
    x: Array, scale: Array, bias: Array, num_groups: int, epsilon: float
) -> tuple[Array, tuple[Array, ...]]:
    wide = _wide(x)
    mean = _group_mean(jnp.sum(wide, axis=(1, 2)), num_groups, x.shape)
    square = _group_mean(jnp.sum(jnp.square(wide), axis=(1, 2)), num_groups, x.shape)
    inverse = jax.lax.rsqrt(jnp.maximum(square - jnp.square(mean), 0) + epsilon)
    slope = inverse * scale[None]
    y = wide * _over_pixels(slope) + _over_pixels(bias[None] - mean * slope)
    return y.astype(x.dtype), (x, scale, bias, mean, inverse)


def _gradients(num_groups: int, epsilon: float, saved: tuple[Array, ...], dy: Array) -> tuple[Array, Array, Array]:
    narrow, scale, bias, mean, inverse = saved
    x, dy = _wide(narrow), _wide(dy)
    of_bias = jnp.sum(dy, axis=(1, 2))  # [b, c]
    of_scale = (jnp.sum(dy * x, axis=(1, 2)) - mean * of_bias) * inverse  # sum over pixels of dy times normal x
    along_one = _group_mean(of_bias * scale[None], num_groups, x.shape)
    along_x = _group_mean(of_scale * scale[None], num_groups, x.shape)
    # dx = inverse (dy scale - along_one - normal x along_x), as one line in dy and x
    of_dy, of_x = inverse * scale[None], -jnp.square(inverse) * along_x
    rest = -inverse * along_one - mean * of_x
    dx = dy * _over_pixels(of_dy) + x * _over_pixels(of_x) + _over_pixels(rest)
    by_scale, by_bias = of_scale.sum(axis=0), of_bias.sum(axis=0)
    return dx.astype(narrow.dtype), by_scale.astype(scale.dtype), by_bias.astype(bias.dtype)


group_normalize.defvjp(_normalize, _gradients)


def _wide(x: Array) -> Array:
    """In float32 or wider: the difference of two sums needs the digits."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _group_mean(sums: Array, num_groups: int, shape: tuple[int, ...]) -> Array:
    """Sums over pixels [b, c] -> mean over pixels and channels of the group, for each channel [b, c]."""
    b, c = sums.shape
    total = sums.reshape(b, num_groups, -1).sum(axis=-1, keepdims=True)
    mean = total / (shape[1] * shape[2] * (c // num_groups))
    return jnp.broadcast_to(mean, (b, num_groups, c // num_groups)).reshape(b, c)


def _over_pixels(values: Array) -> Array:
    return values[:, None, None]


class GroupNorm(nnx.GroupNorm):
    """Group normalisation of images, for which each example stands alone, so that no mask matters."""

    def __call__(self, x: Array, *, mask: Array | None = None) -> Array:
        """Normalised images [b, h, w, c]."""
        del mask
        assert self.scale is not None and self.bias is not None
        return group_normalize(x, self.scale[...], self.bias[...], self.num_groups, self.epsilon)
