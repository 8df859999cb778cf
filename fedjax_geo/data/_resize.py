"""Images of the size that a model takes: made once from a whole source, or batch by batch on the device.

A source grows with its images. Where these become much larger, as 28x28 pixels for a vision transformer of
224x224, ``resize`` keeps the small ones and enlarges what a batch holds.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fedjax_geo import _validate
from fedjax_geo.data._source import Source

_CHUNK = 256  # images converted at a time


def _height_width(size: int | tuple[int, int]) -> tuple[int, int]:
    height, width = (size, size) if isinstance(size, int) else size
    return _validate.at_least("size", height, 1), _validate.at_least("size", width, 1)


def padded(source: Source, size: int | tuple[int, int]) -> Source:
    """A source with a border of zeros around its images, on both sides alike; an odd pixel goes below or right.

    ``as_rgb(padded(fashion_mnist, 32))`` has the shape of CIFAR's images.

    Args:
        source: the data set.
        size: height and width, or one number for both.

    Raises:
        ValueError: the images are larger.

    >>> from fedjax_geo.data import load
    >>> as_rgb(padded(load("digits_forms"), 12)).images.shape
    (1797, 12, 12, 3)
    """
    height, width = _height_width(size)
    old = source.images.shape[1:3]
    if height < old[0] or width < old[1]:
        raise ValueError(f"size={height}x{width} must not be below the {old[0]}x{old[1]} pixels that there are")
    border = [((new - had) // 2, (new - had + 1) // 2) for new, had in zip((height, width), old, strict=True)]
    return replace(
        source,
        images=np.pad(source.images, ((0, 0), *border, (0, 0))),
        provenance=f"{source.provenance}, padded to {height}x{width}",
    )


def as_rgb(source: Source) -> Source:
    """A source with its grey channel repeated three times; one of three channels is returned as it is.

    Raises:
        ValueError: neither one nor three channels.
    """
    channels = source.images.shape[-1]
    if channels == 3:
        return source
    if channels != 1:
        raise ValueError(f"as_rgb needs images of 1 or 3 channels, got {channels}")
    return replace(
        source,
        images=np.repeat(source.images, 3, axis=-1),
        provenance=f"{source.provenance}, grey as RGB",
    )


def resized(source: Source, size: int | tuple[int, int]) -> Source:
    """A source with its images interpolated to another size: bilinear, and averaging where they shrink.

    Args:
        source: the data set.
        size: height and width, or one number for both.

    Returns:
        Pixels rounded to whole numbers; equal to the given ones where the size does not change.

    >>> from fedjax_geo.data import load
    >>> resized(load("digits_forms"), (4, 16)).images.shape
    (1797, 4, 16, 1)
    """
    height, width = _height_width(size)
    n, old_height, old_width, channels = source.images.shape
    rows, columns = _mixing(old_height, height), _mixing(old_width, width)
    images = np.empty((n, height, width, channels), np.uint8)
    for start in range(0, n, _CHUNK):
        chunk = source.images[start : start + _CHUNK].astype(np.float32)
        mixed = np.einsum("hr,nrcx,wc->nhwx", rows, chunk, columns, optimize=True)
        images[start : start + _CHUNK] = np.rint(mixed)
    return replace(source, images=images, provenance=f"{source.provenance}, resized to {height}x{width}")


def _mixing(old: int, new: int) -> npt.NDArray[np.float32]:
    """How much each old pixel counts in each new one: a triangle, widened where the image shrinks; [new, old]."""
    step = old / new
    centres = (np.arange(new)[:, None] + 0.5) * step - 0.5
    weights = np.maximum(0, 1 - np.abs(np.arange(old) - centres) / max(step, 1))
    return (weights / weights.sum(1, keepdims=True)).astype(np.float32)


@dataclass(frozen=True)
class Resize:
    """A ``prepare`` made by ``resize``."""

    height: int
    width: int
    channels: int | None

    def __call__(self, x: Any, *, train: bool = False, key: jax.Array | None = None) -> jax.Array:
        """Resize images [b, ..., ..., c] to float32 [b, height, width, c], and repeat a grey channel."""
        del train, key
        x = jnp.asarray(x).astype(jnp.float32)
        if self.channels not in (None, x.shape[-1]) and x.shape[-1] != 1:
            raise ValueError(f"channels={self.channels} cannot be made of images of shape {x.shape}")
        x = jax.image.resize(x, (x.shape[0], self.height, self.width, x.shape[-1]), "linear")
        return jnp.broadcast_to(x, (*x.shape[:-1], self.channels or x.shape[-1]))


def resize(size: int | tuple[int, int], *, channels: int | None = None) -> Resize:
    """Interpolation as ``resized`` does it, on the device and without rounding; comes before the scaling.

    Args:
        size: height and width, or one number for both.
        channels: repeat a grey channel so often.

    Returns:
        A function ``prepare(x, *, train, key)``, hashable and comparable by value.

    Raises:
        ValueError: a size or number of channels below 1.

    >>> resize(4, channels=3)(jnp.ones((2, 8, 8, 1))).shape
    (2, 4, 4, 3)
    """
    return Resize(*_height_width(size), None if channels is None else _validate.at_least("channels", channels, 1))
