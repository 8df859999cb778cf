"""Convolutional network of the FedAvg paper (McMahan et al. 2017, arXiv 1602.05629)."""

import math

from flax import nnx

from fedjax_geo import _validate
from fedjax_geo.models._conv import Convolution, rows
from fedjax_geo.models._layers import channels_of, conv, linear
from fedjax_geo.models._nnx import from_nnx
from fedjax_geo.models._pool import max_pool_2x2
from fedjax_geo.types import Array, Model


class FedAvgCNN(nnx.Module):
    """Two 5 x 5 convolutions of 32 and 64 channels, each with ReLU and 2 x 2 max pooling; then 512 and c units.

    Weights and biases start uniform in +-1 / sqrt(fan in).
    """

    def __init__(
        self, shape: tuple[int, ...], num_classes: int, *, padded: bool, convolution: Convolution, rngs: nnx.Rngs
    ) -> None:
        """Builds the layers; ``shape`` is that of one image."""
        channels, lost = channels_of(shape), 0 if padded else 4
        height, width = (((size - lost) // 2 - lost) // 2 for size in shape[:2])
        if min(height, width) < 1:
            least = 4 if padded else 16
            raise ValueError(f"images must be at least {least} x {least} pixels, got {list(shape)}")
        padding = "SAME" if padded else "VALID"
        self.conv1 = conv(channels, 32, 5, convolution, rngs, padding=padding)
        self.conv2 = conv(32, 64, 5, convolution, rngs, padding=padding)
        self.fc1 = linear(math.prod((height, width, 64)), 512, rngs)
        self.fc2 = linear(512, num_classes, rngs)

    def features(self, x: Array) -> Array:
        """What the last layer sees, [b, 512], of images [b, h, w, c]."""
        x = nnx.relu(max_pool_2x2(self.conv1(x)))
        x = nnx.relu(max_pool_2x2(self.conv2(x)))
        return nnx.relu(self.fc1(x.reshape(len(x), -1)))

    def __call__(self, x: Array) -> Array:
        """Logits [b, c] of images [b, h, w, c]."""
        return self.fc2(self.features(x))


def fedavg_cnn(num_classes: int, *, padded: bool = True, convolution: Convolution = rows) -> Model:
    """The network of the FedAvg paper; 1,663,370 parameters on MNIST, as published.

    Args:
      num_classes: number of logits.
      padded: whether convolutions keep the size of an image, as published; if not, as in FL-bench and the code
        of FedVG, they do not, and 582,026 parameters are left on MNIST.
      convolution: how convolutions are computed, such as ``rows`` or ``native``.

    Returns:
      A model with features, 512 wide.

    Raises:
      ValueError: if ``num_classes`` is not positive; in use, if inputs are not images or too small.
    """
    num_classes = _validate.at_least("num_classes", num_classes, 1)
    return from_nnx(
        lambda shape, rngs: FedAvgCNN(shape, num_classes, padded=padded, convolution=convolution, rngs=rngs),
        features="features",
    )
