"""Multilayer perceptron of the CRAFT experiments (arXiv 2605.21317)."""

import math
from collections.abc import Sequence
from itertools import pairwise

from flax import nnx

from fedjax_geo.models._layers import linear
from fedjax_geo.models._nnx import from_nnx
from fedjax_geo.types import Array, Model


class MLP(nnx.Module):
    """Fully connected layers ``fc1``, ``fc2``, ... with a ReLU after each but the last.

    Weights and biases start uniform in +-1 / sqrt(fan in).
    """

    def __init__(
        self, num_inputs: int, num_classes: int, hidden: Sequence[int] = (200, 200), *, rngs: nnx.Rngs
    ) -> None:
        """Builds the layers.

        Args:
          num_inputs: values of one example.
          num_classes: width of the last layer.
          hidden: widths of the layers before it.
          rngs: randomness of the initial parameters.
        """
        self.depth = len(hidden) + 1
        for i, (fan_in, fan_out) in enumerate(pairwise((num_inputs, *hidden, num_classes)), start=1):
            setattr(self, f"fc{i}", linear(fan_in, fan_out, rngs))

    def features(self, x: Array) -> Array:
        """What the last layer sees, [b, hidden[-1]], of inputs [b, ...]."""
        x = x.reshape(len(x), -1)
        for i in range(1, self.depth):
            x = nnx.relu(getattr(self, f"fc{i}")(x))
        return x

    def __call__(self, x: Array) -> Array:
        """Logits [b, c] of inputs [b, ...]."""
        return getattr(self, f"fc{self.depth}")(self.features(x))


def mlp(num_classes: int, hidden: Sequence[int] = (200, 200)) -> Model:
    """A multilayer perceptron on flattened inputs; 209,662 parameters on FEMNIST.

    Args:
      num_classes: number of logits.
      hidden: widths of the hidden layers.

    Returns:
      A model with features.

    Raises:
      ValueError: if a width is not positive.

    >>> import jax
    >>> model = mlp(10)
    >>> variables = model.init(jax.random.key(0), jax.numpy.ones((1, 28, 28, 1)))
    >>> variables.params["fc1"]["kernel"].shape
    (784, 200)
    """
    for name, width in [("num_classes", num_classes), *(("hidden", width) for width in hidden)]:
        if width < 1:
            raise ValueError(f"{name} must be positive, got {width}")
    return from_nnx(lambda shape, rngs: MLP(math.prod(shape), num_classes, hidden, rngs=rngs), features="features")
