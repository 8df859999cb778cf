"""Vision transformers (arXiv 2010.11929), shaped as in the timm library, whose weights FedVG starts from."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.nn.initializers import normal

from fedjax_geo import _validate, layers
from fedjax_geo.models._chain import chain
from fedjax_geo.models._layers import channels_of, conv, linear
from fedjax_geo.models._nnx import from_nnx
from fedjax_geo.types import Array, Model, PyTree


class EncoderBlock(nnx.Module):
    """Self-attention and two dense layers, each after a norm and around a shortcut."""

    def __init__(self, width: int, heads: int, rngs: nnx.Rngs) -> None:
        """Builds the layers."""

        def dense(fan_in: int, fan_out: int) -> nnx.Linear:
            return nnx.Linear(fan_in, fan_out, kernel_init=normal(0.02), rngs=rngs)

        self.heads = heads
        self.norm1 = nnx.LayerNorm(width, epsilon=1e-6, rngs=rngs)
        self.qkv = dense(width, 3 * width)
        self.proj = dense(width, width)
        self.norm2 = nnx.LayerNorm(width, epsilon=1e-6, rngs=rngs)
        self.fc1 = dense(width, 4 * width)
        self.fc2 = dense(4 * width, width)

    def __call__(self, x: Array) -> Array:
        """Tokens [b, t, width] -> [b, t, width]."""
        b, t, width = x.shape
        query, key, value = jnp.moveaxis(self.qkv(self.norm1(x)).reshape(b, t, 3, self.heads, -1), 2, 0)
        x = x + self.proj(jax.nn.dot_product_attention(query, key, value).reshape(b, t, width))
        return x + self.fc2(nnx.gelu(self.fc1(self.norm2(x)), approximate=False))


class ViT(nnx.Module):
    """``patch`` projection, ``class_token`` and ``position``, encoder ``blocks``, ``norm`` and ``head``."""

    def __init__(
        self,
        shape: tuple[int, ...],
        num_classes: int,
        *,
        width: int,
        depth: int,
        heads: int,
        patch: int,
        rngs: nnx.Rngs,
    ) -> None:
        """Builds the layers; the arguments are those of ``vit`` with the shape of one image."""
        channels = channels_of(shape)
        if min(shape[:2]) < patch or shape[0] % patch or shape[1] % patch:
            raise ValueError(f"images must divide into patches of {patch} x {patch}, got {list(shape)}")
        tokens = 1 + (shape[0] // patch) * (shape[1] // patch)
        self.patch = conv(channels, width, patch, _disjoint, rngs, stride=patch)
        self.class_token = nnx.Param(normal(1e-6)(rngs.params(), (1, 1, width)))
        self.position = nnx.Param(normal(0.02)(rngs.params(), (1, tokens, width)))
        self.blocks = nnx.List([EncoderBlock(width, heads, rngs) for _ in range(depth)])
        self.norm = nnx.LayerNorm(width, epsilon=1e-6, rngs=rngs)
        self.head = linear(width, num_classes, rngs)

    def features(self, x: Array) -> Array:
        """What the last layer sees, [b, width], of images [b, h, w, c]: the class token after the last norm."""
        x = self.patch(x)
        b, _, _, width = x.shape
        first = jnp.broadcast_to(self.class_token[...], (b, 1, width))
        x = jnp.concatenate([first, x.reshape(b, -1, width)], axis=1) + self.position[...]
        return self.norm(chain(list(self.blocks), x)[:, 0])

    def __call__(self, x: Array) -> Array:
        """Logits [b, c] of images [b, h, w, c]."""
        return self.head(self.features(x))


def vit(num_classes: int, *, width: int, depth: int = 12, heads: int, patch: int = 16) -> Model:
    """A vision transformer of any size.

    Dense kernels start normal with deviation 0.02 and biases zero; the projection of patches and the last
    layer start uniform in +-1 / sqrt(fan in). There is no dropout.

    Args:
      num_classes: number of logits.
      width: of a token; a multiple of ``heads``.
      depth: number of encoder blocks.
      heads: of each attention.
      patch: pixels of a patch on each side; must divide the images, whose size fixes the positions.

    Returns:
      A model with features, ``width`` wide.

    Raises:
      ValueError: if an argument is not positive or ``heads`` does not divide ``width``; in use, if inputs are
        not images that divide into patches.

    >>> model = vit(10, width=8, depth=1, heads=2, patch=4)
    >>> variables = jax.eval_shape(model.init, jax.random.key(0), jnp.ones((1, 8, 8, 3)))
    >>> variables.params["position"].shape
    (1, 5, 8)
    """
    for name, value in [("num_classes", num_classes), ("width", width), ("depth", depth), ("heads", heads)]:
        _validate.at_least(name, value, 1)
    _validate.at_least("patch", patch, 1)
    if width % heads:
        raise ValueError(f"heads must divide width, got {heads} and {width}")
    sizes = {"width": width, "depth": depth, "heads": heads, "patch": patch}
    return from_nnx(lambda shape, rngs: ViT(shape, num_classes, **sizes, rngs=rngs), features="features")


def vit_s16(num_classes: int) -> Model:
    """ViT-S/16: width 384, 12 blocks of 6 heads; on 224 x 224 images and 4 classes 21,667,204 parameters.

    Args:
      num_classes: number of logits.

    Returns:
      A model with features, 384 wide.

    Raises:
      ValueError: as ``vit``.
    """
    return vit(num_classes, width=384, heads=6)


def vit_b16(num_classes: int) -> Model:
    """ViT-B/16: width 768, 12 blocks of 12 heads; on 224 x 224 images and 7 classes 85,804,039 parameters.

    Args:
      num_classes: number of logits.

    Returns:
      A model with features, 768 wide.

    Raises:
      ValueError: as ``vit``.
    """
    return vit(num_classes, width=768, heads=12)


def vit_blocks(params: PyTree) -> PyTree:
    """Grouping of a vision transformer into FedVG's blocks (arXiv 2602.21399): as ``layers.block`` elsewhere.

    The groups are ``base`` (class token, positions, projection of patches, last norm), ``blocks/0``, ... and
    ``classifier``.

    >>> vit_blocks({"blocks": {"0": {"fc1": {"bias": 0.0}}}, "norm": {"bias": 0.0}, "head": {"bias": 0.0}})
    {'blocks': {'0': {'fc1': {'bias': 'blocks/0'}}}, 'head': {'bias': 'classifier'}, 'norm': {'bias': 'base'}}
    """

    def label(path: layers.Path) -> str:
        if path[0] == "blocks":
            return "/".join(path[:2])
        return "classifier" if path[0] == "head" else "base"

    return layers.by_path(label)(params)


def _disjoint(lhs: Array, rhs: Array, *args: Any, **options: Any) -> Array:
    """Convolution whose stride is the size of its kernel, as one matrix product."""
    del args, options  # the stride, no padding and defaults
    size, _, c, out = rhs.shape
    b, h, w, _ = lhs.shape
    cut = lhs.reshape(b, h // size, size, w // size, size, c).swapaxes(2, 3)
    return cut.reshape(b, h // size, w // size, -1) @ rhs.reshape(size * size * c, out)
