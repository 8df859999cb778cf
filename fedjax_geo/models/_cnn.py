"""Convolutional network of the CRAFT experiments (arXiv 2605.21317)."""

import math

from flax import nnx

from fedjax_geo.models._conv import Convolution, rows
from fedjax_geo.models._layers import conv, linear
from fedjax_geo.models._nnx import from_nnx
from fedjax_geo.models._pool import max_pool_2x2
from fedjax_geo.types import Array, Model


class CNN(nnx.Module):
    """Two 5 x 5 convolutions of 64 channels, each with ReLU and 2 x 2 max pooling; then 384, 192 and c units.

    Dropout (0.2, 0.5) comes before the ReLU of the dense layers. Weights and biases start uniform in
    +-1 / sqrt(fan in).
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        num_classes: int,
        *,
        convolution: Convolution = rows,
        rngs: nnx.Rngs,
    ) -> None:
        """Builds the layers.

        Args:
          shape: height, width and channels of one image.
          num_classes: width of the last layer.
          convolution: how convolutions are computed.
          rngs: randomness of the initial parameters.

        Raises:
          ValueError: if ``shape`` is not of an image, or of one too small for two convolutions.
        """
        if len(shape) != 3 or min(shape[:2]) < 16:
            raise ValueError(f"the CNN needs images [h, w, c] of at least 16 x 16 pixels, got {list(shape)}")
        height, width = (((size - 4) // 2 - 4) // 2 for size in shape[:2])
        self.conv1 = conv(shape[2], 64, 5, convolution, rngs)
        self.conv2 = conv(64, 64, 5, convolution, rngs)
        self.fc1 = linear(math.prod((height, width, 64)), 384, rngs)
        self.fc2 = linear(384, 192, rngs)
        self.fc3 = linear(192, num_classes, rngs)
        self.dropout1 = nnx.Dropout(0.2)
        self.dropout2 = nnx.Dropout(0.5)

    def features(self, x: Array, *, rngs: nnx.Rngs | None = None) -> Array:
        """What the last layer sees, [b, 192], of images [b, h, w, c]."""
        x = nnx.relu(max_pool_2x2(self.conv1(x)))
        x = nnx.relu(max_pool_2x2(self.conv2(x)))
        x = x.reshape(len(x), -1)
        x = nnx.relu(self.dropout1(self.fc1(x), rngs=rngs))
        return nnx.relu(self.dropout2(self.fc2(x), rngs=rngs))

    def __call__(self, x: Array, *, rngs: nnx.Rngs | None = None) -> Array:
        """Logits [b, c] of images [b, h, w, c]."""
        return self.fc3(self.features(x, rngs=rngs))


def cnn(num_classes: int, convolution: Convolution = rows) -> Model:
    """A small convolutional network; 797,962 parameters on CIFAR-10.

    Args:
      num_classes: number of logits.
      convolution: how convolutions are computed, such as ``rows`` or ``native``.

    Returns:
      A model with features.

    Raises:
      ValueError: if ``num_classes`` is not positive; in use, if images are smaller than 16 x 16.

    >>> import jax
    >>> variables = jax.eval_shape(cnn(10).init, jax.random.key(0), jax.numpy.ones((1, 32, 32, 3)))
    >>> variables.params["fc1"]["kernel"].shape
    (1600, 384)
    """
    if num_classes < 1:
        raise ValueError(f"num_classes must be positive, got {num_classes}")
    return from_nnx(
        lambda shape, rngs: CNN(shape, num_classes, convolution=convolution, rngs=rngs), features="features"
    )
