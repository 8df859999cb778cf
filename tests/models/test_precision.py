import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_geo.models import in_precision, resnet

X = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype(np.float32)


def test_gradients_are_close_and_keep_their_type():
    plain = resnet(10, 8)
    variables = plain.init(jax.random.key(0), X)

    @jax.jit
    def gradient(variables, x):
        def both(params):
            models = (plain, in_precision(plain, jnp.bfloat16))
            return [m.apply(variables._replace(params=params), x, train=True)[0] for m in models]

        logits, pullback = jax.vjp(both, variables.params)
        zero, one = jnp.zeros_like(logits[0]), jnp.ones_like(logits[0])
        return logits, pullback([one, zero])[0], pullback([zero, one])[0]

    logits, exact, rough = gradient(variables, X)
    assert logits[1].dtype == jnp.float32
    assert np.any(np.asarray(logits[0]) != np.asarray(logits[1]))
    np.testing.assert_allclose(logits[1], logits[0], atol=0.1)
    for a, b in zip(jax.tree.leaves(exact), jax.tree.leaves(rough), strict=True):
        assert b.dtype == jnp.float32
        assert np.linalg.norm(a - b) <= 0.15 * np.linalg.norm(a) + 1e-3


def test_only_floating_point():
    with pytest.raises(ValueError, match="dtype must be floating point"):
        in_precision(resnet(10, 8), jnp.int8)
