import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_geo.models import vit


def np_norm(x, p):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6) * p["scale"] + p["bias"]


def dense(x, p):
    return x @ p["kernel"] + p["bias"]


def attention(x, p, heads):
    """One example [t, width] at a time, one head at a time."""
    query, key, value = np.split(dense(x, p["qkv"]), 3, axis=-1)
    size = x.shape[-1] // heads
    out = []
    for h in range(heads):
        own = slice(h * size, (h + 1) * size)
        scores = np.exp(query[:, own] @ key[:, own].T / np.sqrt(size))
        out.append(scores / scores.sum(-1, keepdims=True) @ value[:, own])
    return dense(np.concatenate(out, axis=-1), p["proj"])


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))


def np_vit(p, image, patch, heads, depth):
    h, w, _ = image.shape
    tokens = [p["class_token"][0, 0]]
    for i in range(0, h, patch):
        for j in range(0, w, patch):
            cut = image[i : i + patch, j : j + patch]
            tokens.append(np.einsum("hwc,hwco->o", cut, p["patch"]["kernel"]) + p["patch"]["bias"])
    x = np.stack(tokens) + p["position"][0]
    for i in range(depth):
        block = p["blocks"][str(i)]
        x = x + attention(np_norm(x, block["norm1"]), block, heads)
        x = x + dense(gelu(dense(np_norm(x, block["norm2"]), block["fc1"])), block["fc2"])
    return dense(np_norm(x, p["norm"])[0], p["head"])


def test_a_vision_transformer_equals_a_numpy_reference():
    """Five blocks, so that they are computed by a loop."""
    model = vit(3, width=8, depth=5, heads=2, patch=2)
    random = np.random.default_rng(0)
    x = random.normal(size=(2, 4, 6, 3)).astype(np.float32)
    shapes = jax.eval_shape(model.init, jax.random.key(0), x)
    variables = jax.tree.map(lambda s: random.normal(size=s.shape, scale=0.4).astype(np.float32), shapes)
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), variables.params)
    wanted = [np_vit(p, image, 2, 2, 5) for image in x.astype(np.float64)]
    found = jax.jit(lambda v, x: model.apply(v, x, train=False)[0])(variables, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_vision_transformer_starts_as_that_of_timm():
    params = vit(10, width=64, depth=1, heads=2, patch=8).init(jax.random.key(0), jnp.zeros((1, 32, 32, 3))).params
    for name in ("qkv", "proj", "fc1", "fc2"):
        assert abs(params["blocks"]["0"][name]["kernel"].std() - 0.02) < 0.002
        assert not params["blocks"]["0"][name]["bias"].any()
    assert abs(params["position"].std() - 0.02) < 0.003
    assert 0 < params["class_token"].std() < 2e-6
    for name, fan_in in (("patch", 8 * 8 * 3), ("head", 64)):
        assert 0.9 < jnp.abs(params[name]["kernel"]).max() * fan_in**0.5 <= 1 + 1e-6
