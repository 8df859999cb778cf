"""Layers that start as torch's do, unless told otherwise: uniform in +-1 / sqrt(fan in)."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.nn.initializers import Initializer, variance_scaling

from fedjax_geo.types import Array, Key

torch_uniform = variance_scaling(1 / 3, "fan_in", "uniform")
kaiming_fan_in = variance_scaling(2.0, "fan_in", "normal")
kaiming_fan_out = variance_scaling(2.0, "fan_out", "normal")


def channels_of(shape: Sequence[int]) -> int:
    """Channels of images of that shape; a ValueError if it is not of images."""
    if len(shape) != 3:
        raise ValueError(f"this model needs images [h, w, c], got {list(shape)}")
    return shape[2]


def linear(fan_in: int, fan_out: int, rngs: nnx.Rngs, kernel_init: Initializer = torch_uniform) -> nnx.Linear:
    """Dense layer [..., fan_in] -> [..., fan_out]."""
    return nnx.Linear(fan_in, fan_out, kernel_init=kernel_init, bias_init=_bias_init(fan_in), rngs=rngs)


def conv(
    channels: int,
    out: int,
    size: int,
    convolution: Callable[..., Array],
    rngs: nnx.Rngs,
    *,
    padding: str = "VALID",
    stride: int = 1,
) -> nnx.Conv:
    """Convolution with bias; valid [b, h, w, channels] -> [b, h - size + 1, w - size + 1, out] unless said."""
    return nnx.Conv(
        channels,
        out,
        (size, size),
        (stride, stride),
        padding=padding,
        kernel_init=torch_uniform,
        bias_init=_bias_init(channels * size**2),
        conv_general_dilated=convolution,
        rngs=rngs,
    )


def bare_conv(
    channels: int,
    out: int,
    size: int,
    stride: int,
    convolution: Callable[..., Array],
    kernel_init: Initializer,
    rngs: nnx.Rngs,
) -> nnx.Conv:
    """Convolution without bias, padded by size // 2 on every side, which "SAME" is not where it strides."""
    return nnx.Conv(
        channels,
        out,
        (size, size),
        (stride, stride),
        padding=((size // 2, size // 2),) * 2,
        use_bias=False,
        kernel_init=kernel_init,
        conv_general_dilated=convolution,
        rngs=rngs,
    )


def _bias_init(fan_in: int) -> Initializer:
    bound = 1 / math.sqrt(fan_in)

    def init(key: Key, shape: Any, dtype: Any = jnp.float32, out_sharding: Any = None) -> Array:
        del out_sharding
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init
