"""Convolutions to inject into ``nnx.Conv(conv_general_dilated=...)``.

Mapped over clients, each with its own kernel, XLA's convolution becomes a grouped one, and its gradients inside a
loop take slow paths of XLA's CPU compiler. The others here are made of what is fast anywhere, matrix products
(``patches``, ``rows``) or forward convolutions (``native_forward``), forward and backward. All equal ``native`` up
to rounding; which one is fastest depends on backend, layer shapes and layout, see ``docs/performance.md``.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_geo.types import Array

Convolution = Callable[..., Array]  # as jax.lax.conv_general_dilated, with images [b, h, w, c]
Pads = tuple[tuple[int, int], tuple[int, int]]  # (low, high) of height and width

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
    """Convolves by cutting out patches and one matrix product.

    The patches take as many times the memory of the input as the kernel has taps.

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
    pads = _check("patches", lhs, rhs, window_strides, padding, dimension_numbers, options)
    kh, kw, c, out = rhs.shape
    x = jnp.pad(lhs, ((0, 0), *pads, (0, 0))) if any(map(any, pads)) else lhs
    b, height, width, _ = x.shape
    sh, sw = window_strides
    h, w = (height - kh) // sh + 1, (width - kw) // sw + 1
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


def rows(
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
    """Convolves by patches one pixel high, one matrix product for all rows of the kernel, and a sum of shifts.

    It moves ``kw c + kh out`` numbers for each pixel where ``patches`` moves ``kh kw c``, and its products are
    wider; so do those of both gradients. Where there are strides, or so few channels that patches are smaller,
    this is ``patches``. Arguments, result and errors are those of ``patches``.

    >>> x, kernel = jnp.ones((2, 8, 8, 3)), jnp.ones((3, 3, 3, 16))
    >>> rows(x, kernel, (1, 1), "SAME").shape
    (2, 8, 8, 16)
    """
    pads = _check("rows", lhs, rhs, window_strides, padding, dimension_numbers, options)
    kh, kw, c, out = rhs.shape
    if tuple(window_strides) != (1, 1) or kh * kw * c <= kw * c + kh * out:
        return patches(
            lhs, rhs, window_strides, pads, precision=precision, preferred_element_type=preferred_element_type
        )
    return _rows(lhs, rhs, pads, precision, preferred_element_type)


def native_forward(
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
    """Convolves by XLA's convolution, with gradients made of a forward convolution and a matrix product.

    Arguments, result and errors are those of ``patches``.

    >>> x, kernel = jnp.ones((2, 8, 8, 3)), jnp.ones((3, 3, 3, 16))
    >>> native_forward(x, kernel, (2, 2), "SAME").shape
    (2, 4, 4, 16)
    """
    pads = _check("native_forward", lhs, rhs, window_strides, padding, dimension_numbers, options)
    return _native(lhs, rhs, tuple(window_strides), pads, precision, preferred_element_type)


def _shift(x: Array, by: int, size: int, axis: int) -> Array:
    """``out[r] = x[r - by]`` for r in [0, size) along an axis, zero where there is no such x."""
    config = [(0, 0, 0)] * x.ndim
    config[axis] = (by, size - x.shape[axis] - by, 0)
    return lax.pad(x, jnp.zeros((), x.dtype), config)


def _columns(x: Array, kw: int, low: int, width: int) -> Array:
    """Patches of one by ``kw`` pixels, of x padded by ``low`` on the left: [b, h, w, c] -> [b, h, width, kw c]."""
    return jnp.concatenate([_shift(x, low - j, width, 2) for j in range(kw)], axis=-1)


def _met(g: Array, kh: int, low: int, height: int) -> Array:
    """What each row r of the input met at tap i: [b, h, w, o] -> [b, height, w, kh o], ``g[r + low - i]``."""
    return jnp.concatenate([_shift(g, i - low, height, 1) for i in range(kh)], axis=-1)


def _sum_of_shifts(parts: Sequence[Array], by: Sequence[int], size: int, axis: int) -> Array:
    return functools.reduce(jnp.add, (_shift(part, b, size, axis) for part, b in zip(parts, by, strict=True)))


def _kernel_gradient(x: Array, g: Array, kernel: Array, pads: Pads, precision: Any) -> tuple[Array, Array]:
    """The gradient of a convolution without strides by its kernel, and what the rows of x met."""
    kh, kw, c, out = kernel.shape
    met = _met(g, kh, pads[0][0], x.shape[1])
    columns = _columns(x, kw, pads[1][0], g.shape[2])
    product = jnp.matmul(columns.reshape(-1, kw * c).T, met.reshape(-1, kh * out), precision=precision)
    return product.reshape(kw, c, kh, out).transpose(2, 0, 1, 3).astype(kernel.dtype), met


def _as_matrix(kernel: Array) -> Array:
    """[kh, kw, c, out] -> [kw c, kh out]."""
    kh, kw, c, out = kernel.shape
    return kernel.transpose(1, 2, 0, 3).reshape(kw * c, kh * out)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _rows(x: Array, kernel: Array, pads: Pads, precision: Any, result_type: Any) -> Array:
    kh, kw = kernel.shape[:2]
    height, width = (
        size + low + high - k + 1
        for size, (low, high), k in zip(x.shape[1:3], pads, kernel.shape[:2], strict=True)
    )
    columns = _columns(x, kw, pads[1][0], width)
    y = jnp.matmul(columns, _as_matrix(kernel), precision=precision, preferred_element_type=result_type)
    return _sum_of_shifts(jnp.split(y, kh, axis=-1), [pads[0][0] - i for i in range(kh)], height, 1)


def _rows_save(
    x: Array, kernel: Array, pads: Pads, precision: Any, result_type: Any
) -> tuple[Array, tuple[Array, Array]]:
    return _rows(x, kernel, pads, precision, result_type), (x, kernel)


def _rows_backward(
    pads: Pads, precision: Any, result_type: Any, saved: tuple[Array, Array], g: Array
) -> tuple[Array, Array]:
    x, kernel = saved
    kernel_gradient, met = _kernel_gradient(x, g.astype(x.dtype), kernel, pads, precision)
    spread = jnp.matmul(met, _as_matrix(kernel).T, precision=precision)  # [b, h, w', kw c]
    kw = kernel.shape[1]
    by = [j - pads[1][0] for j in range(kw)]
    return _sum_of_shifts(jnp.split(spread, kw, axis=-1), by, x.shape[2], 2), kernel_gradient


_rows.defvjp(_rows_save, _rows_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4, 5))
def _native(
    x: Array, kernel: Array, strides: tuple[int, ...], pads: Pads, precision: Any, result_type: Any
) -> Array:
    return lax.conv_general_dilated(
        x,
        kernel,
        strides,
        pads,
        dimension_numbers=_LAYOUT,
        precision=precision,
        preferred_element_type=result_type,
    )


def _native_save(
    x: Array, kernel: Array, strides: tuple[int, ...], pads: Pads, precision: Any, result_type: Any
) -> tuple[Array, tuple]:
    return _native(x, kernel, strides, pads, precision, result_type), (x, kernel)


def _native_backward(
    strides: tuple[int, ...], pads: Pads, precision: Any, result_type: Any, saved: tuple, g: Array
) -> tuple[Array, Array]:
    x, kernel = saved
    # With zeros between its pixels the gradient of a strided convolution is that of one without strides.
    spaced = ((0, 0, 0), *((0, 0, s - 1) for s in strides), (0, 0, 0))
    g = lax.pad(g.astype(x.dtype), jnp.zeros((), x.dtype), spaced)
    # A stride can leave input pixels at the end that no window reaches.
    ends = [
        size + low + high - (k - 1) - n
        for size, (low, high), k, n in zip(x.shape[1:3], pads, kernel.shape[:2], g.shape[1:3], strict=True)
    ]
    g = lax.pad(g, jnp.zeros((), g.dtype), ((0, 0, 0), *((0, end, 0) for end in ends), (0, 0, 0)))
    around = tuple((k - 1 - low, k - 1 - high) for k, (low, high) in zip(kernel.shape, pads, strict=False))
    flipped = jnp.flip(kernel, (0, 1)).swapaxes(2, 3)
    x_gradient = lax.conv_general_dilated(
        g, flipped, (1, 1), around, dimension_numbers=_LAYOUT, precision=precision
    )
    return x_gradient, _kernel_gradient(x, g, kernel, pads, precision)[0]


_native.defvjp(_native_save, _native_backward)


def _check(
    name: str,
    lhs: Array,
    rhs: Array,
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dimension_numbers: Any,
    options: dict[str, Any],
) -> Pads:
    """The pads of height and width, if the convolution is one that these functions do."""
    if lhs.ndim != 4:
        raise ValueError(f"{name} needs images [b, h, w, c], got shape {lhs.shape}")
    layout, wanted = (lax.conv_dimension_numbers(lhs.shape, rhs.shape, d) for d in (dimension_numbers, _LAYOUT))
    if layout != wanted:
        raise ValueError(f"{name} needs dimension_numbers={_LAYOUT}, got {dimension_numbers}; use native")
    for option, value in options.items():
        if value not in (None, 1, (1, 1)):
            raise ValueError(f"{name} does not support {option}={value}; use native")
    sizes, kernel = lhs.shape[1:3], rhs.shape[:2]
    pads = lax.padtype_to_pads(sizes, kernel, strides, padding) if isinstance(padding, str) else padding
    height, width = ((int(low), int(high)) for low, high in pads)
    padded = [size + low + high for size, (low, high) in zip(sizes, (height, width), strict=True)]
    if any(size < k for size, k in zip(padded, kernel, strict=True)):
        raise ValueError(
            f"a kernel of {kernel[0]} x {kernel[1]} does not fit an image of {padded[0]} x {padded[1]}"
        )
    return height, width
