import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from fedjax_geo.models import max_pool_2x2, native, native_forward, patches, rows

LAYOUT = ("NHWC", "HWIO", "NHWC")
CASES = [
    # kernel, stride, padding, size, channels in, out
    (1, 1, "VALID", (6, 6), 3, 4),
    (1, 2, "VALID", (7, 6), 4, 8),
    (3, 1, "SAME", (6, 7), 3, 8),
    (3, 1, ((1, 1), (1, 1)), (8, 8), 8, 8),
    (3, 2, ((1, 1), (1, 1)), (8, 8), 4, 8),
    (3, 2, ((1, 1), (1, 1)), (7, 9), 4, 2),
    (3, 2, "SAME", (8, 7), 1, 4),
    (3, 1, "VALID", (5, 8), 8, 4),
    (5, 1, "VALID", (9, 8), 1, 6),
    (5, 1, ((2, 2), (2, 2)), (7, 6), 8, 4),
    (5, 2, ((2, 0), (1, 3)), (8, 8), 3, 2),
]


def gradients(convolution, case, mapping):
    """Result and both gradients for three clients, each with its own images and kernel."""
    kernel, stride, padding, size, channels, out = case
    random = np.random.default_rng(0)
    x = random.normal(size=(3, 2, *size, channels)).astype(np.float32)
    w = random.normal(size=(3, kernel, kernel, channels, out)).astype(np.float32) / kernel

    def client(x, w):
        convolve = functools.partial(
            convolution, window_strides=(stride, stride), padding=padding, dimension_numbers=LAYOUT
        )
        y, pullback = jax.vjp(convolve, x, w)
        return y, pullback(jnp.sin(y))

    return jax.jit(mapping(client))(x, w)


def mapped(client):
    return lambda x, w: jax.lax.map(lambda args: client(*args), (x, w))


@functools.cache
def native_gradients(case):
    return gradients(native, case, mapped)


@pytest.mark.parametrize("mapping", [jax.vmap, mapped])
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("convolution", [patches, rows, native_forward])
def test_strategies_equal_the_native_convolution(convolution, case, mapping):
    found, wanted = gradients(convolution, case, mapping), native_gradients(case)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, wanted)


@pytest.mark.parametrize("padding", ["SAME", "VALID", 1, "CIRCULAR"])
def test_patches_in_a_flax_layer(padding):
    x = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype(np.float32)
    layers = [
        nnx.Conv(3, 4, (3, 3), 2, padding=padding, conv_general_dilated=convolution, rngs=nnx.Rngs(0))
        for convolution in (native, patches)
    ]
    np.testing.assert_allclose(layers[0](x), layers[1](x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel_dilation": 2}, "rhs_dilation"),
        ({"input_dilation": 2}, "lhs_dilation"),
        ({"feature_group_count": 2}, "feature_group_count"),
    ],
)
def test_patches_refuses_what_it_cannot_do(options, message):
    layer = nnx.Conv(4, 4, (3, 3), conv_general_dilated=patches, rngs=nnx.Rngs(0), **options)
    with pytest.raises(ValueError, match=message):
        layer(jnp.ones((1, 8, 8, 4)))


def test_patches_refuses_other_layouts_and_ranks():
    kernel = jnp.ones((3, 3, 4, 4))
    with pytest.raises(ValueError, match="dimension_numbers"):
        patches(jnp.ones((1, 4, 8, 8)), kernel, (1, 1), "SAME", dimension_numbers=("NCHW", "HWIO", "NCHW"))
    with pytest.raises(ValueError, match="b, h, w, c"):
        patches(jnp.ones((1, 8, 4)), jnp.ones((3, 4, 4)), (1,), "SAME")
    with pytest.raises(ValueError, match="does not fit"):
        patches(jnp.ones((1, 2, 8, 4)), kernel, (1, 1), "VALID")


@pytest.mark.parametrize("size", [(2, 2), (8, 6), (7, 5), (9, 4)])
def test_max_pool_equals_flax(size):
    x = np.random.default_rng(0).normal(size=(2, *size, 3)).astype(np.float32)

    def both(pool):
        y, pullback = jax.vjp(pool, x)
        return y, pullback(jnp.cos(y))

    found = both(max_pool_2x2)
    wanted = both(lambda x: nnx.max_pool(x, (2, 2), strides=(2, 2)))
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


def test_equal_values_share_the_gradient():
    gradient = jax.grad(lambda x: max_pool_2x2(x).sum())(jnp.zeros((1, 2, 3, 1)))
    np.testing.assert_array_equal(gradient[0, :, :, 0], [[0.25, 0.25, 0], [0.25, 0.25, 0]])
