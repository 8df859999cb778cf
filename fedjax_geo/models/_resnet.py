"""Residual networks of four stages (arXiv 1512.03385): ResNet-18 and ResNet-50, for small and large images.

CRAFT (arXiv 2605.21317) has the small form, FedVG (arXiv 2602.21399) the large one at any image size.
"""

from fedjax_geo import _validate
from fedjax_geo.models._conv import Convolution, rows
from fedjax_geo.models._layers import channels_of, kaiming_fan_in, kaiming_fan_out, torch_uniform
from fedjax_geo.models._nnx import from_nnx
from fedjax_geo.models._norms import Norm, batch_norm, group_norm
from fedjax_geo.models._residual import BasicBlock, Block, Bottleneck, Plan, ResNet
from fedjax_geo.types import Model

_KINDS: dict[int, tuple[type[Block], tuple[int, ...]]] = {
    18: (BasicBlock, (2, 2, 2, 2)),
    50: (Bottleneck, (3, 4, 6, 3)),
}


def resnet18(num_classes: int, *, norm: Norm = group_norm(), convolution: Convolution = rows) -> Model:  # noqa: B008
    """ResNet-18 for small images: 3 x 3 stem, no pooling; 11,173,962 parameters on CIFAR-10.

    Shortcuts that change shape are 1 x 1 convolutions, ``shortcut_conv`` with ``shortcut_norm``. Kernels, of the
    last layer as well, start normal with variance 2 / fan in, the last bias uniform in +-1 / sqrt(fan in).

    Args:
      num_classes: number of logits.
      norm: follows each convolution, ``group_norm(...)`` or ``batch_norm(...)``.
      convolution: how convolutions are computed, such as ``rows`` or ``native``.

    Returns:
      A model with features, 512 wide.

    Raises:
      ValueError: if ``num_classes`` is not positive; in use, if inputs are not images.
    """
    return _build(18, num_classes, norm, convolution, large=False)


def resnet50(num_classes: int, *, norm: Norm = group_norm(), convolution: Convolution = rows) -> Model:  # noqa: B008
    """ResNet-50 for small images, as ``resnet18``; 23,520,842 parameters on CIFAR-10, features 2048 wide.

    Args:
      num_classes: number of logits.
      norm: follows each convolution, ``group_norm(...)`` or ``batch_norm(...)``.
      convolution: how convolutions are computed, such as ``rows`` or ``native``.

    Returns:
      A model with features, 2048 wide.

    Raises:
      ValueError: if ``num_classes`` is not positive; in use, if inputs are not images.
    """
    return _build(50, num_classes, norm, convolution, large=False)


def imagenet_resnet(
    num_classes: int,
    depth: int = 18,
    *,
    norm: Norm = batch_norm(),  # noqa: B008 - a value, not a state
    convolution: Convolution = rows,
) -> Model:
    """ResNet-18 or ResNet-50 as for ImageNet: 7 x 7 stem with stride 2, 3 x 3 max pooling with stride 2.

    It has torchvision's shape, with the stride of a bottleneck in its 3 x 3 convolution, and starts as
    torchvision's: kernels normal with variance 2 / fan out, the last layer uniform in +-1 / sqrt(fan in).
    ``load_weights`` with ``torchvision_resnet()`` reads its trained weights. For ten classes depth 18 has
    11,181,642 parameters; the running means and variances are 9,600 numbers, and 53,120 of depth 50.
    ``layers.block`` finds stem, four stages and ``fc``.

    Args:
      num_classes: number of logits.
      depth: 18 or 50.
      norm: follows each convolution, ``batch_norm(...)`` or ``group_norm(...)``.
      convolution: how convolutions are computed, such as ``rows`` or ``native``.

    Returns:
      A model with features, 512 or 2048 wide.

    Raises:
      ValueError: if ``num_classes`` is not positive or ``depth`` another; in use, if inputs are not images.

    >>> import jax
    >>> variables = jax.eval_shape(imagenet_resnet(7).init, jax.random.key(0), jax.numpy.ones((1, 32, 32, 3)))
    >>> variables.params["stem"]["conv"]["kernel"].shape, variables.stats["stem"]["norm"]["var"].shape
    ((7, 7, 3, 64), (64,))
    """
    if depth not in _KINDS:
        raise ValueError(f"depth must be one of {sorted(_KINDS)}, got {depth}")
    return _build(depth, num_classes, norm, convolution, large=True)


def _build(depth: int, num_classes: int, norm: Norm, convolution: Convolution, *, large: bool) -> Model:
    num_classes = _validate.at_least("num_classes", num_classes, 1)
    block, counts = _KINDS[depth]
    plan = Plan(
        block=block,
        counts=counts,
        widths=(64, 128, 256, 512),
        norm=norm,
        convolution=convolution,
        kernel_init=kaiming_fan_out if large else kaiming_fan_in,
        head_init=torch_uniform if large else kaiming_fan_in,
        projection=True,
        large_stem=large,
    )
    return from_nnx(lambda shape, rngs: ResNet(channels_of(shape), num_classes, plan, rngs), features="features")
