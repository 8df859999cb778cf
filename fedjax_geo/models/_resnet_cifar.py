"""Residual networks for small images, as CRAFT (arXiv 2605.21317) trains them: group norm, padded shortcuts."""

from fedjax_geo import _validate
from fedjax_geo.models._conv import Convolution, rows
from fedjax_geo.models._layers import channels_of, kaiming_fan_in
from fedjax_geo.models._nnx import from_nnx
from fedjax_geo.models._norms import Norm, group_norm
from fedjax_geo.models._residual import BasicBlock, Plan, ResNet
from fedjax_geo.types import Model


def resnet(
    num_classes: int,
    depth: int = 20,
    *,
    norm: Norm = group_norm(),  # noqa: B008 - a value, not a state
    convolution: Convolution = rows,
    loop: bool = True,
) -> Model:
    """The residual network of 16, 32 and 64 channels for CIFAR (arXiv 1512.03385, section 4.2).

    A 3 x 3 convolution, three stages of (depth - 2) / 6 basic blocks and a linear layer; shortcuts have no
    parameters. Kernels, of the last layer as well, start normal with variance 2 / fan in, the last bias
    uniform in +-1/8. On CIFAR-10 depth 20 has 269,722 parameters, 56 has 853,018 and 110 has 1,727,962;
    ``layers.module`` finds ``depth`` layers.

    Args:
      num_classes: number of logits.
      depth: layers with parameters: 20, 32, 44, 56 or 110, or any other 6 k + 2.
      norm: follows each convolution, ``group_norm(...)`` or ``batch_norm(...)``.
      convolution: how convolutions are computed, such as ``rows`` or ``native``.
      loop: whether the equal blocks of a stage, if more than three, are computed by one loop, for the sake of
        compile time; the parameters are the same.

    Returns:
      A model with features, 64 wide.

    Raises:
      ValueError: if ``num_classes`` is not positive or ``depth`` not 6 k + 2; in use, if inputs are not images.

    >>> import jax
    >>> variables = jax.eval_shape(resnet(10, 8).init, jax.random.key(0), jax.numpy.ones((1, 32, 32, 3)))
    >>> sorted(variables.params), variables.params["layer2"]["0"]["conv1"]["kernel"].shape
    (['fc', 'layer1', 'layer2', 'layer3', 'stem'], (3, 3, 16, 32))
    """
    num_classes = _validate.at_least("num_classes", num_classes, 1)
    if depth < 8 or depth % 6 != 2:
        raise ValueError(f"depth must be 6 k + 2, such as 20, 32, 44, 56 or 110, got {depth}")
    plan = Plan(
        block=BasicBlock,
        counts=((depth - 2) // 6,) * 3,
        widths=(16, 32, 64),
        norm=norm,
        convolution=convolution,
        kernel_init=kaiming_fan_in,
        head_init=kaiming_fan_in,
        projection=False,
        loop=loop,
    )
    return from_nnx(lambda shape, rngs: ResNet(channels_of(shape), num_classes, plan, rngs), features="features")
