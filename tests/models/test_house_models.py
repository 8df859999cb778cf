import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_geo.models import cnn, mlp, native
from fedjax_geo.types import Variables

FEMNIST, CIFAR = (28, 28, 1), (32, 32, 3)


def images(*shape):
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def drawn(model, x, seed=0):
    """Variables of the right shapes and scale, without waiting for ``init`` to compile."""
    random = np.random.default_rng(seed)

    def draw(leaf):
        return random.normal(size=leaf.shape, scale=(leaf.shape[-1] / leaf.size) ** 0.5).astype(np.float32)

    return jax.tree.map(draw, jax.eval_shape(model.init, jax.random.key(0), x))


def outputs(model, variables, x):
    """Logits and features in evaluation."""
    return jax.jit(lambda v, x: (model.apply(v, x, train=False)[0], model.features(v, x, train=False)))(
        variables, x
    )


def count(params):
    return sum(x.size for x in jax.tree.leaves(params))


@pytest.mark.parametrize(
    ("model", "shape", "wanted"),
    [
        (mlp(62), FEMNIST, 209_662),
        (mlp(10), CIFAR, 656_810),
        (mlp(100), CIFAR, 674_900),
        (cnn(10), CIFAR, 797_962),
        (cnn(100), CIFAR, 815_332),
        (cnn(62), FEMNIST, 583_614),
    ],
)
def test_published_parameter_counts(model, shape, wanted):
    variables = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((2, *shape)))
    assert count(variables.params) == wanted
    assert variables.stats == ()


@pytest.mark.parametrize(("model", "shape"), [(mlp(62), FEMNIST), (cnn(10), CIFAR)])
def test_parameters_start_uniform_within_the_fan_in_bound(model, shape):
    params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, *shape))).params
    for layer in params.values():
        bound = np.prod(layer["kernel"].shape[:-1]) ** -0.5
        for x in layer.values():
            assert np.abs(x).max() <= bound * (1 + 1e-6)
            if x.size > 1000:
                np.testing.assert_allclose(np.std(x), bound / np.sqrt(3), rtol=0.05)
                assert np.abs(x).max() > 0.98 * bound


def relu(x):
    return np.maximum(x, 0)


def convolve(x, layer):
    windows = np.lib.stride_tricks.sliding_window_view(x, (5, 5), axis=(1, 2))
    return np.einsum("bhwcij,ijco->bhwo", windows, layer["kernel"]) + layer["bias"]


def pool(x):
    _, h, w, _ = x.shape
    windows = [x[:, i : h - h % 2 : 2, j : w - w % 2 : 2] for i in (0, 1) for j in (0, 1)]
    return np.max(windows, axis=0)


@pytest.mark.parametrize("shape", [CIFAR, (19, 18, 2)])
def test_cnn_equals_a_numpy_reference(shape):
    model = cnn(10)
    x = images(3, *shape)
    variables = drawn(model, x)
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), variables.params)
    h = np.asarray(x, np.float64)
    for name in ("conv1", "conv2"):
        h = pool(relu(convolve(h, p[name])))
    h = h.reshape(3, -1)
    for name in ("fc1", "fc2"):
        h = relu(h @ p[name]["kernel"] + p[name]["bias"])
    logits, features = outputs(model, variables, x)
    np.testing.assert_allclose(logits, h @ p["fc3"]["kernel"] + p["fc3"]["bias"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(features, h, rtol=1e-4, atol=1e-5)


def test_mlp_equals_a_numpy_reference():
    model = mlp(5, hidden=(7,))
    x = images(3, 4, 4)
    variables = drawn(model, x)
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), variables.params)
    h = relu(np.asarray(x, np.float64).reshape(3, 16) @ p["fc1"]["kernel"] + p["fc1"]["bias"])
    logits, features = outputs(model, variables, x)
    np.testing.assert_allclose(logits, h @ p["fc2"]["kernel"] + p["fc2"]["bias"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(features, h, rtol=1e-5, atol=1e-5)


def test_hidden_may_be_none_at_all():
    x = jnp.ones((2, 3))
    variables = mlp(5, hidden=()).init(jax.random.key(0), x)
    assert jax.tree.map(jnp.shape, variables.params) == {"fc1": {"bias": (5,), "kernel": (3, 5)}}


def test_cnn_drops_units_at_the_published_rates():
    model = cnn(10)
    x = images(16, 16, 16, 1)
    variables = drawn(model, x)
    run = jax.jit(lambda key: model.features(variables, x, train=True, key=key))
    first, second = run(jax.random.key(0)), run(jax.random.key(1))
    assert (first != second).any()
    # Half of what is positive without dropout, give or take what the dropout before it changes.
    kept = (first > 0).mean() / (outputs(model, variables, x)[1] > 0).mean()
    assert 0.45 < kept < 0.55


def test_clients_with_their_own_cnn_agree_with_the_native_convolution():
    x = images(2, 2, 16, 16, 1)
    variables = jax.tree.map(lambda *leaves: np.stack(leaves), *[drawn(cnn(3), x[0], seed) for seed in (0, 1)])

    def gradient(model):
        def loss(params, x, key):
            return jnp.tanh(model.apply(Variables(params), x, train=True, key=key)[0]).sum()

        keys = jax.random.split(jax.random.key(2), 2)
        return jax.jit(jax.vmap(jax.grad(loss)))(variables.params, x, keys)

    found, wanted = gradient(cnn(3)), gradient(cnn(3, native))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, wanted)


@pytest.mark.parametrize("shape", [(8, 8, 1), (16, 15, 1), (64,)])
def test_cnn_says_when_images_are_too_small(shape):
    with pytest.raises(ValueError, match="at least 16 x 16"):
        cnn(10).init(jax.random.key(0), jnp.zeros((1, *shape)))


@pytest.mark.parametrize("make", [lambda: mlp(0), lambda: mlp(10, (200, 0)), lambda: cnn(0)])
def test_widths_are_positive(make):
    with pytest.raises(ValueError, match=r"must be positive, got 0"):
        make()
