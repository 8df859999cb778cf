"""What residual networks are made of (arXiv 1512.03385)."""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from flax import nnx
from jax.nn.initializers import Initializer

from fedjax_geo.models._chain import chain
from fedjax_geo.models._conv import Convolution
from fedjax_geo.models._layers import bare_conv, linear
from fedjax_geo.models._norms import Norm
from fedjax_geo.models._pool import max_pool_3x3
from fedjax_geo.types import Array


class Plan(NamedTuple):
    """A residual network but for its channels and classes."""

    block: type["Block"]
    counts: tuple[int, ...]  # blocks of each stage
    widths: tuple[int, ...]  # of each stage, before the expansion of its blocks
    norm: Norm
    convolution: Convolution
    kernel_init: Initializer  # of convolutions
    head_init: Initializer  # of the last layer's kernel
    projection: bool  # shortcuts that change shape are 1 x 1 convolutions, not padding
    large_stem: bool = False  # 7 x 7 with stride 2 and max pooling, not 3 x 3
    loop: bool = True  # see ``chain``


class Stem(nnx.Module):
    """Convolution, norm and ReLU."""

    def __init__(self, channels: int, plan: Plan, rngs: nnx.Rngs) -> None:
        """Builds the layers."""
        size, stride = (7, 2) if plan.large_stem else (3, 1)
        self.conv = bare_conv(channels, plan.widths[0], size, stride, plan.convolution, plan.kernel_init, rngs)
        self.norm = plan.norm(plan.widths[0], rngs)

    def __call__(self, x: Array, mask: Array | None) -> Array:
        """Images [b, h, w, channels] -> [b, h', w', widths[0]]."""
        return nnx.relu(self.norm(self.conv(x), mask=mask))


class Block(nnx.Module):
    """Convolutions ``conv1``, ``norm1``, ``conv2``, ... beside a shortcut. The kinds differ in ``sizes``."""

    sizes: ClassVar[tuple[int, ...]]  # of the kernels; the first of 3 x 3 has the stride
    expansion: ClassVar[int]  # of the width by the last convolution

    def __init__(self, channels: int, width: int, stride: int, plan: Plan, rngs: nnx.Rngs) -> None:
        """Builds the layers."""

        def conv(channels: int, out: int, size: int, stride: int) -> nnx.Conv:
            return bare_conv(channels, out, size, stride, plan.convolution, plan.kernel_init, rngs)

        last, strided = len(self.sizes), self.sizes.index(3) + 1
        self.stride, self.out = stride, width * self.expansion
        self.projects = plan.projection and (stride, channels) != (1, self.out)
        if self.projects:
            self.shortcut_conv = conv(channels, self.out, 1, stride)
            self.shortcut_norm = plan.norm(self.out, rngs)
        for i, size in enumerate(self.sizes, start=1):
            out = self.out if i == last else width
            setattr(self, f"conv{i}", conv(channels, out, size, stride if i == strided else 1))
            setattr(self, f"norm{i}", plan.norm(out, rngs))
            channels = out

    def __call__(self, x: Array, mask: Array | None) -> Array:
        """Images [b, h, w, channels] -> [b, h', w', out]."""
        y = x
        for i in range(1, len(self.sizes) + 1):
            y = nnx.relu(y) if i > 1 else y
            y = getattr(self, f"norm{i}")(getattr(self, f"conv{i}")(y), mask=mask)
        if self.projects:
            x = self.shortcut_norm(self.shortcut_conv(x), mask=mask)
        else:
            x = padded_shortcut(x, self.out, self.stride)
        return nnx.relu(y + x)


class BasicBlock(Block):
    """Two convolutions of 3 x 3, the first with the stride."""

    sizes, expansion = (3, 3), 1


class Bottleneck(Block):
    """1 x 1, 3 x 3 with the stride, and 1 x 1 to four times the width."""

    sizes, expansion = (1, 3, 1), 4


class ResNet(nnx.Module):
    """``stem``, stages ``layer1``, ``layer2``, ... of blocks, mean over pixels, ``fc``.

    The first block of each stage but the first has stride 2.
    """

    def __init__(self, channels: int, num_classes: int, plan: Plan, rngs: nnx.Rngs) -> None:
        """Builds the layers."""
        self.num_stages, self.pools, self.loop = len(plan.counts), plan.large_stem, plan.loop
        self.stem = Stem(channels, plan, rngs)
        channels = plan.widths[0]
        for stage, (count, width) in enumerate(zip(plan.counts, plan.widths, strict=True), start=1):
            blocks = []
            for i in range(count):
                blocks.append(plan.block(channels, width, 2 if stage > 1 and i == 0 else 1, plan, rngs))
                channels = blocks[-1].out
            setattr(self, f"layer{stage}", nnx.List(blocks))
        self.fc = linear(channels, num_classes, rngs, plan.head_init)

    def features(self, x: Array, mask: Array | None = None) -> Array:
        """What the last layer sees, [b, f], of images [b, h, w, c]."""
        x = self.stem(x, mask)
        if self.pools:
            x = max_pool_3x3(x)
        for stage in range(1, self.num_stages + 1):
            first, *others = getattr(self, f"layer{stage}")
            x = chain(others, first(x, mask), mask, loop=self.loop)
        return x.mean(axis=(1, 2))

    def __call__(self, x: Array, mask: Array | None = None) -> Array:
        """Logits [b, c] of images [b, h, w, c]."""
        return self.fc(self.features(x, mask))


def padded_shortcut(x: Array, out: int, stride: int) -> Array:
    """Every ``stride``-th pixel, with zero channels added evenly before and after (option A).

    Args:
      x: images [b, h, w, c].
      out: channels of the result; c plus an even number.
      stride: of height and width.

    Returns:
      Images [b, ceil(h / stride), ceil(w / stride), out].

    >>> padded_shortcut(jnp.arange(1.0, 5.0).reshape(1, 2, 2, 1), 3, 2).ravel()
    Array([0., 1., 0.], dtype=float32)
    """
    side = (out - x.shape[-1]) // 2
    x = x[:, ::stride, ::stride]
    return jnp.pad(x, ((0, 0), (0, 0), (0, 0), (side, side))) if side else x
