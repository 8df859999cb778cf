"""Max pooling that is cheap to differentiate."""

import functools

import jax.numpy as jnp

from fedjax_geo.types import Array


def max_pool_2x2(x: Array) -> Array:
    """Largest value of each 2 x 2 window with stride 2; an odd last row or column is dropped.

    Equals ``nnx.max_pool(x, (2, 2), strides=(2, 2))``, except that equal largest values share the gradient
    evenly, where the other gives it to the first. On a CPU the gradient of a maximum over an axis is much
    cheaper than that of a window reduction.

    Args:
      x: images [b, h, w, c].

    Returns:
      Images [b, h // 2, w // 2, c].

    >>> import jax
    >>> max_pool_2x2(jax.numpy.arange(6.0).reshape(1, 2, 3, 1)).ravel()
    Array([4.], dtype=float32)
    """
    b, h, w, c = x.shape
    h, w = h // 2, w // 2
    return x[:, : 2 * h, : 2 * w].reshape(b, h, 2, w, 2, c).max(axis=(2, 4))


def max_pool_3x3(x: Array) -> Array:
    """Largest value of each 3 x 3 window with stride 2, of images padded by one pixel on every side.

    Equals ``nnx.max_pool(x, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))``, with the gradient of equal
    largest values shared, for the reason above.

    Args:
      x: images [b, h, w, c].

    Returns:
      Images [b, (h + 1) // 2, (w + 1) // 2, c].

    >>> max_pool_3x3(jnp.arange(9.0).reshape(1, 3, 3, 1)).ravel()
    Array([4., 5., 7., 8.], dtype=float32)
    """
    _, h, w, _ = x.shape
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-jnp.inf)
    taps = (x[:, i : i + h : 2, j : j + w : 2] for i in range(3) for j in range(3))
    return functools.reduce(jnp.maximum, taps)
