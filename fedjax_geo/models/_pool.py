"""Max pooling that is cheap to differentiate."""

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
