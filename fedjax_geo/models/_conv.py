"""Convolutions to inject into ``nnx.Conv(conv_general_dilated=...)``.

A convolution mapped over clients, each with its own kernel, becomes a grouped convolution, and its gradients
inside a loop take slow paths of XLA's CPU compiler. Cut into patches it is one matrix product, forward and
backward, which is fast wherever matrix products are. The price is memory: patches are as many times larger
than the input as the kernel has taps.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from fedjax_geo.types import Array

Convolution = Callable[..., Array]  # as jax.lax.conv_general_dilated, with images [b, h, w, c]

native: Convolution = lax.conv_general_dilated

_LAYOUT = ("NHWC", "HWIO", "NHWC")


def patches(
    lhs: Array,
    rhs: Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    *,
    dimension_numbers: Any = _LAYOUT,
    precision: Any = None,
    preferred_element_type: Any = None,
    **options: Any,
) -> Array:
    """Convolves by cutting out patches and one matrix product; equals ``native`` up to rounding.

    Args:
      lhs: images [b, h, w, c].
      rhs: kernel [kh, kw, c, out].
      window_strides: of height and width.
      padding: ``"SAME"``, ``"VALID"`` or (low, high) of height and width.
      dimension_numbers: the layout, no other than that.
      precision: of the matrix product.
      preferred_element_type: type of the result.
      **options: what else flax passes; only its defaults are supported.

    Returns:
      Images [b, h', w', out].

    Raises:
      ValueError: if asked for dilation, groups, another layout or other than two spatial dimensions, or if
        the kernel does not fit the padded images.

    >>> x, kernel = jnp.ones((2, 8, 8, 3)), jnp.ones((3, 3, 3, 16))
    >>> patches(x, kernel, (2, 2), "SAME").shape
    (2, 4, 4, 16)
    """
    _check(lhs, rhs, dimension_numbers, options)
    kh, kw, c, out = rhs.shape
    b, *size, _ = lhs.shape
    pads = lax.padtype_to_pads(size, (kh, kw), window_strides, padding) if isinstance(padding, str) else padding
    x = jnp.pad(lhs, ((0, 0), *pads, (0, 0))) if any(map(any, pads)) else lhs
    sh, sw = window_strides
    h, w = (x.shape[1] - kh) // sh + 1, (x.shape[2] - kw) // sw + 1
    if h < 1 or w < 1:
        raise ValueError(f"a kernel of {kh} x {kw} does not fit an image of {x.shape[1]} x {x.shape[2]}")
    taps = [
        lax.slice(x, (0, i, j, 0), (b, i + (h - 1) * sh + 1, j + (w - 1) * sw + 1, c), (1, sh, sw, 1))
        for i in range(kh)
        for j in range(kw)
    ]
    columns = jnp.concatenate(taps, axis=-1).reshape(b * h * w, kh * kw * c)
    y = jnp.matmul(
        columns,
        rhs.reshape(kh * kw * c, out),
        precision=precision,
        preferred_element_type=preferred_element_type,
    )
    return y.reshape(b, h, w, out)


def _check(lhs: Array, rhs: Array, dimension_numbers: Any, options: dict[str, Any]) -> None:
    if lhs.ndim != 4:
        raise ValueError(f"patches needs images [b, h, w, c], got shape {lhs.shape}")
    layout, wanted = (lax.conv_dimension_numbers(lhs.shape, rhs.shape, d) for d in (dimension_numbers, _LAYOUT))
    if layout != wanted:
        raise ValueError(f"patches needs dimension_numbers={_LAYOUT}, got {dimension_numbers}; use native")
    for name, value in options.items():
        if value not in (None, 1, (1, 1)):
            raise ValueError(f"patches does not support {name}={value}; use native")
