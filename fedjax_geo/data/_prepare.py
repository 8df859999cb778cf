"""From stored uint8 images to model inputs.

The constants are fixed per data set, never taken from the examples at hand: every client sees the same
function, whatever its images hold.

A ``prepare`` is a value: equal ones are equal and hash alike, so that a compiled round is found again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np


class Prepare(Protocol):
    """From images as stored to what a model sees. Runs on the device, on one batch."""

    def __call__(self, x: Any, *, train: bool = False, key: jax.Array | None = None) -> jax.Array:
        """Images [b, height, width, channels] to inputs; ``key`` is for what is random in training."""
        ...


@dataclass(frozen=True)
class InOrder:
    """Several of them, one after another."""

    steps: tuple[Prepare, ...]

    def __call__(self, x: Any, *, train: bool = False, key: jax.Array | None = None) -> jax.Array:
        """Apply the steps, each with randomness of its own."""
        for number, step in enumerate(self.steps):
            x = step(x, train=train, key=None if key is None else jax.random.fold_in(key, number))
        return jnp.asarray(x)


def in_order(*steps: Prepare) -> InOrder:
    """One ``prepare`` after another: ``in_order(crop_flip(), scale(255))``.

    Raises:
        ValueError: no steps.

    >>> in_order(scale(2), scale(4))([[0, 8, 16]]).tolist()
    [[0.0, 1.0, 2.0]]
    """
    if not steps:
        raise ValueError("in_order needs at least one step, such as scale(255)")
    return InOrder(steps)


@dataclass(frozen=True)
class Scale:
    """A ``prepare`` function as a value: equal constants make equal, hashable objects."""

    divisor: float
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __call__(self, x: Any, *, train: bool = False, key: jax.Array | None = None) -> jax.Array:
        """Scale images.

        Args:
            x: stored images [b, ..., channels].
            train: ignored, nothing here differs between training and evaluation.
            key: ignored, nothing here is random.

        Returns:
            float32 [b, ..., channels].
        """
        del train, key
        x = jnp.asarray(x).astype(jnp.float32) / self.divisor
        if self.mean is None or self.std is None:
            return x
        channels = (1,) * (x.ndim - 1) + (-1,)
        mean, std = (np.asarray(values, np.float32).reshape(channels) for values in (self.mean, self.std))
        return (x - mean) / std


def scale(divisor: float, mean: Sequence[float] | None = None, std: Sequence[float] | None = None) -> Scale:
    """``x / divisor``, then ``(x - mean) / std`` per channel when these are given.

    Args:
        divisor: what the largest possible pixel value becomes one with, e.g. 255.
        mean: one number per channel, or a single one for all; of images already divided.
        std: like ``mean``.

    Returns:
        A function ``prepare(x, *, train, key)``, hashable and comparable by value.

    Raises:
        ValueError: a divisor or std that is not positive, or only one of mean and std.

    >>> prepare = scale(16)
    >>> prepare([[0, 8, 16]]).tolist()
    [[0.0, 0.5, 1.0]]
    >>> prepare == scale(16.0)
    True
    """
    if not 0 < divisor < float("inf"):
        raise ValueError(f"divisor must be positive and finite, got {divisor}")
    if (mean is None) != (std is None):
        raise ValueError(f"mean and std belong together, got mean={mean} and std={std}")
    if mean is None or std is None:
        return Scale(float(divisor))
    if len(mean) != len(std) or not all(0 < value < float("inf") for value in std):
        raise ValueError(f"std must hold one positive number for each of the {len(mean)} means, got {std}")
    return Scale(float(divisor), tuple(map(float, mean)), tuple(map(float, std)))
