import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_geo.models import cnn, mlp, native

FEMNIST, CIFAR = (28, 28, 1), (32, 32, 3)


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
    params = model.init(jax.random.key(0), jnp.zeros((1, *shape))).params
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
    b, h, w, c = x.shape
    windows = [x[:, i : h - h % 2 : 2, j : w - w % 2 : 2] for i in (0, 1) for j in (0, 1)]
    return np.max(windows, axis=0)


@pytest.mark.parametrize("shape", [FEMNIST, CIFAR, (19, 18, 2)])
def test_cnn_equals_a_numpy_reference(shape):
    model = cnn(10)
    x = jax.random.normal(jax.random.key(1), (3, *shape))
    variables = model.init(jax.random.key(0), x)
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), variables.params)
    h = np.asarray(x, np.float64)
    for name in ("conv1", "conv2"):
        h = pool(relu(convolve(h, p[name])))
    h = h.reshape(3, -1)
    for name in ("fc1", "fc2"):
        h = relu(h @ p[name]["kernel"] + p[name]["bias"])
    logits, _ = model.apply(variables, x, train=False, key=None, mask=None)
    np.testing.assert_allclose(logits, h @ p["fc3"]["kernel"] + p["fc3"]["bias"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(model.features(variables, x, train=False), h, rtol=1e-4, atol=1e-6)


def test_mlp_equals_a_numpy_reference():
    model = mlp(5, hidden=(7,))
    x = jax.random.normal(jax.random.key(1), (3, 4, 4))
    variables = model.init(jax.random.key(0), x)
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), variables.params)
    h = relu(np.asarray(x, np.float64).reshape(3, 16) @ p["fc1"]["kernel"] + p["fc1"]["bias"])
    logits, _ = model.apply(variables, x, train=True)
    np.testing.assert_allclose(logits, h @ p["fc2"]["kernel"] + p["fc2"]["bias"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.features(variables, x, train=True), h, rtol=1e-5, atol=1e-6)


def test_hidden_may_be_none_at_all():
    x = jnp.ones((2, 3))
    variables = mlp(5, hidden=()).init(jax.random.key(0), x)
    assert jax.tree.map(jnp.shape, variables.params) == {"fc1": {"bias": (5,), "kernel": (3, 5)}}


def test_cnn_drops_units_at_the_published_rates():
    model = cnn(10)
    x = jax.random.normal(jax.random.key(1), (8, 16, 16, 1))
    variables = model.init(jax.random.key(0), x)
    features = [model.features(variables, x, train=True, key=jax.random.key(seed)) for seed in range(2)]
    clean = model.features(variables, x, train=False)
    assert (features[0] != features[1]).any()
    # fc2 alone: half of what is positive without dropout, give or take what dropout before it changes.
    kept = np.mean([(f > 0).mean() for f in features]) / (clean > 0).mean()
    assert 0.4 < kept < 0.6


def test_clients_with_their_own_cnn_agree_with_the_native_convolution():
    x = jax.random.normal(jax.random.key(1), (2, 4, 16, 16, 1))
    variables = jax.vmap(cnn(3).init)(jax.random.split(jax.random.key(0), 2), x)

    def gradient(model):
        def loss(params, x, key):
            return (model.apply(variables._replace(params=params), x, train=True, key=key)[0] ** 2).sum()

        keys = jax.random.split(jax.random.key(2), 2)
        return jax.jit(jax.vmap(jax.grad(loss)))(variables.params, x, keys)

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        gradient(cnn(3)),
        gradient(cnn(3, native)),
    )


@pytest.mark.parametrize("shape", [(8, 8, 1), (16, 15, 1), (64,)])
def test_cnn_says_when_images_are_too_small(shape):
    with pytest.raises(ValueError, match="at least 16 x 16"):
        cnn(10).init(jax.random.key(0), jnp.zeros((1, *shape)))


@pytest.mark.parametrize("make", [lambda: mlp(0), lambda: mlp(10, (200, 0)), lambda: cnn(0)])
def test_widths_are_positive(make):
    with pytest.raises(ValueError, match=r"must be positive, got 0"):
        make()
