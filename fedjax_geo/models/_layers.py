"""Layers that start as torch's do: weights and biases uniform in +-1 / sqrt(fan in)."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.nn.initializers import Initializer, variance_scaling

from fedjax_geo.types import Array, Key

_kernel_init = variance_scaling(1 / 3, "fan_in", "uniform")


def linear(fan_in: int, fan_out: int, rngs: nnx.Rngs) -> nnx.Linear:
    """Dense layer [..., fan_in] -> [..., fan_out]."""
    return nnx.Linear(fan_in, fan_out, kernel_init=_kernel_init, bias_init=_bias_init(fan_in), rngs=rngs)


def conv(channels: int, out: int, size: int, convolution: Callable[..., Array], rngs: nnx.Rngs) -> nnx.Conv:
    """Valid convolution [b, h, w, channels] -> [b, h - size + 1, w - size + 1, out]."""
    return nnx.Conv(
        channels,
        out,
        (size, size),
        padding="VALID",
        kernel_init=_kernel_init,
        bias_init=_bias_init(channels * size**2),
        conv_general_dilated=convolution,
        rngs=rngs,
    )


def _bias_init(fan_in: int) -> Initializer:
    bound = 1 / math.sqrt(fan_in)

    def init(key: Key, shape: Any, dtype: Any = jnp.float32, out_sharding: Any = None) -> Array:
        del out_sharding
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init
