"""Random crops and flips, on the device.

K. He et al., 2016, arXiv 1512.03385, section 4.2: pad by 4 pixels, cut out the original size at a random place,
mirror half of the images. The CRAFT experiments train so on CIFAR-10.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_geo import _validate
from fedjax_geo.types import Array, Key


def offsets(key: Key, num_images: int, pad: int) -> tuple[Array, Array, Array]:
    """Where each image is cut out of the padded one, and whether it is mirrored.

    Returns:
        Rows and columns in [0, 2 pad], int32 [b], and bool [b].
    """
    top, left, coin = jax.random.bits(key, (3, num_images), jnp.uint32)
    places = 2 * pad + 1
    return (top % places).astype(jnp.int32), (left % places).astype(jnp.int32), (coin >> 31) == 1


@dataclass(frozen=True)
class CropFlip:
    """A ``prepare`` made by ``crop_flip``."""

    pad: int
    flip: bool

    def __call__(self, x: Any, *, train: bool = False, key: jax.Array | None = None) -> jax.Array:
        """Move and mirror images, each by draws of its own.

        One window is cut out of each padded image and all are mirrored before half of these are kept: no index
        is computed for single pixels.

        Args:
            x: images [b, height, width, channels].
            train: without it they stay as they are.
            key: of everything random here.

        Returns:
            Images like ``x``, of the same type.

        Raises:
            ValueError: x is no batch of images, or the key is missing.
        """
        x = jnp.asarray(x)
        if not train:
            return x
        if x.ndim != 4:
            raise ValueError(f"crop_flip needs images [b, height, width, channels], got shape {x.shape}")
        if key is None:
            raise ValueError("crop_flip needs a key in training, got None")
        b, pad = x.shape[0], self.pad
        top, left, mirror = offsets(key, b, pad)
        padded = jnp.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))

        def window(image: Array, row: Array, column: Array) -> Array:
            return lax.dynamic_slice(image, (row, column, jnp.zeros_like(row)), x.shape[1:])

        x = jax.vmap(window)(padded, top, left)
        return jnp.where(mirror[:, None, None, None], x[:, :, ::-1], x) if self.flip else x


def crop_flip(pad: int = 4, *, flip: bool = True) -> CropFlip:
    """Random crops of the zero-padded images, half of them mirrored; in training only.

    It belongs before the scaling, so that the border is black: ``in_order(crop_flip(), scale(255))``.

    Args:
        pad: pixels on every side.
        flip: mirror left and right, each image with probability one half. Not for characters.

    Returns:
        A function ``prepare(x, *, train, key)``, hashable and comparable by value.

    Raises:
        ValueError: pad is no whole number of at least 0.

    >>> images = jnp.ones((2, 6, 6, 1), jnp.uint8)
    >>> augmented = crop_flip(2)(images, train=True, key=jax.random.key(0))
    >>> augmented.shape, augmented.dtype.name
    ((2, 6, 6, 1), 'uint8')
    """
    return CropFlip(_validate.at_least("pad", pad, 0), bool(flip))
