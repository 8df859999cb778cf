import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from fedjax_geo.models import group_norm

X = np.random.default_rng(0).normal(1, 2, size=(3, 4, 5, 6)).astype(np.float32)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_value_and_gradients_are_those_of_autodiff(groups):
    ours = group_norm(groups)(6, nnx.Rngs(0))
    plain = nnx.GroupNorm(6, groups, epsilon=1e-5, rngs=nnx.Rngs(0))
    for layer in (ours, plain):
        layer.scale[...], layer.bias[...] = jnp.linspace(0.5, 2, 6), jnp.linspace(-1, 1, 6)

    def value_and_gradients(layer):
        graph, state = nnx.split(layer)
        return jax.value_and_grad(lambda s, x: jnp.sum(jnp.sin(nnx.merge(graph, s)(x))), (0, 1))(state, X)

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5),
        *map(jax.tree.leaves, (value_and_gradients(ours), value_and_gradients(plain))),
    )


def test_a_constant_image_has_no_gradient_that_is_not_finite():
    layer = group_norm()(6, nnx.Rngs(0))
    gradient = jax.grad(lambda x: jnp.sum(layer(x)))(jnp.ones((1, 2, 2, 6)))
    np.testing.assert_allclose(gradient, 0, atol=1e-4)
