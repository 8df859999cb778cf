"""Residual networks and their norms against definitions in NumPy, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from fedjax_geo.models import batch_norm, from_nnx, group_norm, imagenet_resnet, max_pool_3x3, patches, resnet
from fedjax_geo.models._layers import kaiming_fan_in
from fedjax_geo.models._residual import BasicBlock, Bottleneck, Plan, ResNet
from fedjax_geo.types import Variables


def small(block=BasicBlock, counts=(1, 1), norm=batch_norm(), projection=True, large_stem=True, loop=True):  # noqa: B008
    plan = Plan(
        block,
        counts,
        (4, 8)[: len(counts)],
        norm,
        patches,
        kaiming_fan_in,
        kaiming_fan_in,
        projection,
        large_stem,
        loop,
    )
    return from_nnx(lambda shape, rngs: ResNet(shape[2], 3, plan, rngs), features="features")


def images(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def drawn(model, x, seed=0):
    """Variables of the right shapes, all away from zero and variances positive, without compiling ``init``."""
    random = np.random.default_rng(seed)

    def draw(leaf):
        if leaf.ndim == 1:
            return random.uniform(0.5, 1.5, size=leaf.shape).astype(np.float32)
        return random.normal(size=leaf.shape, scale=(leaf.shape[-1] / leaf.size) ** 0.5).astype(np.float32)

    return jax.tree.map(draw, jax.eval_shape(model.init, jax.random.key(0), x))


def np_conv(x, kernel, stride):
    """Padded by half the kernel on every side, each pixel from its window."""
    size, pad = kernel.shape[0], kernel.shape[0] // 2
    b, h, w, _ = x.shape
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    out = np.zeros((b, (h + 2 * pad - size) // stride + 1, (w + 2 * pad - size) // stride + 1, kernel.shape[3]))
    for i in range(out.shape[1]):
        for j in range(out.shape[2]):
            window = x[:, i * stride : i * stride + size, j * stride : j * stride + size]
            out[:, i, j] = np.einsum("bhwc,hwco->bo", window, kernel)
    return out


def np_pool(x):
    x = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    rows, columns = range(0, x.shape[1] - 2, 2), range(0, x.shape[2] - 2, 2)
    return np.stack([np.stack([x[:, i : i + 3, j : j + 3].max((1, 2)) for j in columns], 1) for i in rows], 1)


def np_norm(x, params, stats):
    """By running statistics if there are any, else over each example."""
    mean, var = (stats["mean"], stats["var"]) if stats else (x.mean((1, 2, 3), keepdims=True), None)
    var = x.var((1, 2, 3), keepdims=True) if var is None else var
    return (x - mean) / np.sqrt(var + 1e-5) * params["scale"] + params["bias"]


def np_block(x, p, s, stride):
    last = max(i for i in range(1, 4) if f"conv{i}" in p)
    strided = 1 if last == 2 else 2
    y = x
    for i in range(1, last + 1):
        y = np_conv(y, p[f"conv{i}"]["kernel"], stride if i == strided else 1)
        y = np_norm(y, p[f"norm{i}"], s.get(f"norm{i}"))
        y = np.maximum(y, 0) if i < last else y
    if "shortcut_conv" in p:
        x = np_norm(np_conv(x, p["shortcut_conv"]["kernel"], stride), p["shortcut_norm"], s.get("shortcut_norm"))
    elif x.shape[-1] != y.shape[-1]:
        wide = np.zeros(y.shape)
        side = (y.shape[-1] - x.shape[-1]) // 2
        wide[..., side : side + x.shape[-1]] = x[:, ::2, ::2]
        x = wide
    return np.maximum(x + y, 0)


def np_resnet(variables, x):
    p, s = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tuple(variables))
    s = s or {}
    large = p["stem"]["conv"]["kernel"].shape[0] == 7
    x = np_conv(np.asarray(x, np.float64), p["stem"]["conv"]["kernel"], 2 if large else 1)
    x = np.maximum(np_norm(x, p["stem"]["norm"], s.get("stem", {}).get("norm")), 0)
    x = np_pool(x) if large else x
    for stage in range(1, 5):
        blocks = p.get(f"layer{stage}", {})
        for i in range(len(blocks)):
            stats = s.get(f"layer{stage}", {}).get(str(i), {})
            x = np_block(x, blocks[str(i)], stats, 2 if stage > 1 and i == 0 else 1)
    x = x.mean((1, 2))
    return x, x @ p["fc"]["kernel"] + p["fc"]["bias"]


@pytest.mark.parametrize(
    "model",
    [
        resnet(3, 8),
        small(counts=(1, 2)),
        small(block=Bottleneck),
        small(block=Bottleneck, norm=group_norm(), large_stem=False),
    ],
)
@pytest.mark.parametrize("size", [8, 9])
def test_resnets_equal_a_numpy_reference(model, size):
    x = images(2, size, size, 3)
    variables = drawn(model, x)
    features, logits = np_resnet(variables, x)
    found = jax.jit(lambda v, x: (model.features(v, x, train=False), model.apply(v, x, train=False)[0]))(
        variables, x
    )
    np.testing.assert_allclose(found[0], features, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found[1], logits, rtol=1e-3, atol=1e-4)


def np_start(fan):
    return np.sqrt(2 / fan)


@pytest.mark.slow  # to compile so many normal draws
def test_small_resnets_start_as_published():
    params = resnet(10, 8).init(jax.random.key(0), jnp.zeros((1, 32, 32, 3))).params
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        name, values = jax.tree_util.keystr(path, simple=True, separator="/"), np.asarray(leaf)
        if name.endswith("kernel"):
            assert values.std() == pytest.approx(np_start(np.prod(values.shape[:-1])), rel=0.1), name
            assert abs(values.mean()) < 4 * values.std() / np.sqrt(values.size), name
            # A normal has values beyond twice its deviation, which a truncated one has not.
            assert np.abs(values).max() > 2.3 * values.std(), name
        elif name == "fc/bias":
            assert 0.06 < np.abs(values).max() <= 1 / 8
        else:
            assert (values == (1 if name.endswith("scale") else 0)).all(), name


@pytest.mark.slow
def test_large_resnets_start_as_those_of_torchvision():
    params = imagenet_resnet(10).init(jax.random.key(0), jnp.zeros((1, 32, 32, 3))).params
    for kernel in (params["stem"]["conv"]["kernel"], params["layer2"]["0"]["shortcut_conv"]["kernel"]):
        assert kernel.std() == pytest.approx(np_start(kernel.size / kernel.shape[2]), rel=0.05)
    for leaf in params["fc"].values():
        assert 0.4 / np.sqrt(512) < jnp.abs(leaf).max() <= 1 / np.sqrt(512)


@pytest.mark.parametrize("groups", [1, 2])
def test_group_norm_equals_its_definition(groups):
    x = images(3, 4, 5, 6) * 3 + 1
    layer = group_norm(groups)(6, nnx.Rngs(0))
    layer.scale[...], layer.bias[...] = jnp.arange(6.0), jnp.arange(6.0) - 2
    split = x.reshape(3, 4, 5, groups, -1).astype(np.float64)
    mean, var = (f(split, axis=(1, 2, 4), keepdims=True) for f in (np.mean, np.var))
    wanted = ((split - mean) / np.sqrt(var + 1e-5)).reshape(x.shape) * np.arange(6.0) + np.arange(6.0) - 2
    for mask in (None, jnp.array([True, False, True])):
        np.testing.assert_allclose(layer(x, mask=mask), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("true", [None, 3, 1])
def test_batch_norm_equals_its_definition(true):
    """Torch's: biased variance to normalise, unbiased to remember; rows of padding do not count."""
    x = images(4, 2, 3, 5) * 2 + 1
    layer = batch_norm(0.75)(5, nnx.Rngs(0))
    layer.train()
    counted = x[:true].astype(np.float64)
    mean, var = counted.mean((0, 1, 2)), counted.var((0, 1, 2))
    found = layer(x, mask=None if true is None else jnp.arange(4) < true)[:true]
    np.testing.assert_allclose(found, (counted - mean) / np.sqrt(var + 1e-5), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layer.mean[...], 0.25 * mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layer.var[...], 0.75 + 0.25 * counted.var((0, 1, 2), ddof=1), rtol=1e-4)
    layer.eval()
    running = (np.asarray(v[...], np.float64) for v in (layer.mean, layer.var))
    mean, var = running
    np.testing.assert_allclose(layer(x), (x - mean) / np.sqrt(var + 1e-5), rtol=1e-4, atol=1e-5)


def test_batch_norm_of_one_number_is_finite():
    layer = batch_norm()(2, nnx.Rngs(0))
    layer.train()
    assert jnp.isfinite(layer(jnp.ones((1, 1, 1, 2)))).all()
    np.testing.assert_allclose(layer.var[...], 0.9, rtol=1e-6)


def test_padding_reaches_no_norm_of_a_resnet():
    model = small(counts=(1,))
    x = images(4, 8, 8, 3)
    variables = drawn(model, x)
    run = jax.jit(lambda x, mask: model.apply(variables, x, train=True, mask=mask))
    logits, stats = run(x, jnp.arange(4) < 3)
    other, other_stats = run(x * np.array([1, 1, 1, 50.0], np.float32)[:, None, None, None], jnp.arange(4) < 3)
    np.testing.assert_allclose(logits[:3], other[:3], rtol=1e-5, atol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), stats, other_stats)
    assert all((a != b).all() for a, b in zip(*map(jax.tree.leaves, (stats, variables.stats)), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("norm", [batch_norm(), group_norm()])
def test_a_loop_over_blocks_changes_nothing(norm):
    """Six blocks, of which five are equal: results, gradients and each block's own statistics."""
    x = images(2, 3, 6, 6, 3)

    def run(loop):
        model = small(counts=(6,), norm=norm, large_stem=False, loop=loop)
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *[drawn(model, x[0], seed) for seed in (0, 1)])

        def loss(params, stats, x):
            logits, stats = model.apply(Variables(params, stats), x, train=True, mask=jnp.arange(3) < 2)
            return jnp.sin(logits[:2]).sum(), (logits, stats)

        return jax.jit(jax.vmap(jax.grad(loss, has_aux=True)))(*stacked, x)

    found, wanted = run(True), run(False)
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), found, wanted)


@pytest.mark.parametrize("size", [(6, 6), (7, 5)])
def test_max_pool_3x3_equals_that_of_flax(size):
    x = images(2, *size, 3)
    pooled = nnx.max_pool(x, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))
    np.testing.assert_array_equal(max_pool_3x3(x), pooled)
    gradient = jax.grad(lambda x: jnp.sin(max_pool_3x3(x)).sum())(x)
    assert gradient.sum() == pytest.approx(float(jnp.cos(pooled).sum()), rel=1e-4)
