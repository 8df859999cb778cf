"""LeNet-5 as FL-bench has it, and with it the code of FedVG (arXiv 2602.21399): with batch norm and ReLU."""

import math

from flax import nnx

from fedjax_geo import _validate
from fedjax_geo.models._conv import Convolution, rows
from fedjax_geo.models._layers import channels_of, conv, linear
from fedjax_geo.models._nnx import from_nnx
from fedjax_geo.models._norms import Norm, batch_norm
from fedjax_geo.models._pool import max_pool_2x2
from fedjax_geo.types import Array, Model


class LeNet5(nnx.Module):
    """Two 5 x 5 convolutions of 6 and 16 channels, each with norm, ReLU and 2 x 2 pooling; then 120, 84 and c.

    Weights and biases start uniform in +-1 / sqrt(fan in).
    """

    def __init__(
        self, shape: tuple[int, ...], num_classes: int, *, norm: Norm, convolution: Convolution, rngs: nnx.Rngs
    ) -> None:
        """Builds the layers; ``shape`` is that of one image."""
        channels = channels_of(shape)
        if min(shape[:2]) < 16:
            raise ValueError(f"LeNet-5 needs images of at least 16 x 16 pixels, got {list(shape)}")
        height, width = (((size - 4) // 2 - 4) // 2 for size in shape[:2])
        self.conv1 = conv(channels, 6, 5, convolution, rngs)
        self.norm1 = norm(6, rngs)
        self.conv2 = conv(6, 16, 5, convolution, rngs)
        self.norm2 = norm(16, rngs)
        self.fc1 = linear(math.prod((height, width, 16)), 120, rngs)
        self.fc2 = linear(120, 84, rngs)
        self.fc3 = linear(84, num_classes, rngs)

    def features(self, x: Array, mask: Array | None = None) -> Array:
        """What the last layer sees, [b, 84], of images [b, h, w, c]."""
        x = nnx.relu(max_pool_2x2(self.norm1(self.conv1(x), mask=mask)))
        x = nnx.relu(max_pool_2x2(self.norm2(self.conv2(x), mask=mask)))
        x = x.reshape(len(x), -1)
        return nnx.relu(self.fc2(nnx.relu(self.fc1(x))))

    def __call__(self, x: Array, mask: Array | None = None) -> Array:
        """Logits [b, c] of images [b, h, w, c]."""
        return self.fc3(self.features(x, mask))


def lenet5(num_classes: int, *, norm: Norm = batch_norm(), convolution: Convolution = rows) -> Model:  # noqa: B008
    """LeNet-5 with batch norm, FedVG's default model; 62,050 parameters on CIFAR-10.

    Args:
      num_classes: number of logits.
      norm: follows each convolution, ``batch_norm(...)`` or ``group_norm(...)``.
      convolution: how convolutions are computed, such as ``rows`` or ``native``.

    Returns:
      A model with features, 84 wide.

    Raises:
      ValueError: if ``num_classes`` is not positive; in use, if images are smaller than 16 x 16.
    """
    num_classes = _validate.at_least("num_classes", num_classes, 1)
    return from_nnx(
        lambda shape, rngs: LeNet5(shape, num_classes, norm=norm, convolution=convolution, rngs=rngs),
        features="features",
    )
