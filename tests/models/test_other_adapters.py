import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen

from fedjax_geo.models import from_functions, from_linen
from fedjax_geo.types import Variables


class Net(linen.Module):
    @linen.compact
    def __call__(self, x, train, mask=None):
        x = linen.Dense(8)(x)
        mask = None if mask is None else mask[:, None]
        x = linen.BatchNorm(use_running_average=not train, momentum=0.5)(x, mask=mask)
        x = linen.Dropout(0.5, deterministic=not train)(x)
        return linen.Dense(3)(x)


class Deterministic(linen.Module):
    @linen.compact
    def __call__(self, x, deterministic):
        return linen.Dropout(0.5, deterministic=deterministic)(linen.Dense(3)(x))


class Counting(linen.Module):
    @linen.compact
    def __call__(self, x):
        self.variable("counter", "steps", lambda: jnp.zeros(()))
        return x


X = jax.random.normal(jax.random.key(7), (5, 4))
model = from_linen(Net())


@pytest.fixture(scope="module")
def variables():
    return model.init(jax.random.key(0), X)


def test_linen_variables(variables):
    assert set(variables.params) == {"Dense_0", "BatchNorm_0", "Dense_1"}
    assert set(variables.stats) == {"BatchNorm_0"}


def test_linen_statistics_move_in_training_only(variables):
    _, trained = model.apply(variables, X, train=True, key=jax.random.key(0))
    _, kept = model.apply(variables, X, train=False)
    assert (trained["BatchNorm_0"]["var"] != variables.stats["BatchNorm_0"]["var"]).all()
    jax.tree.map(np.testing.assert_array_equal, kept, variables.stats)
    assert jax.tree.structure(trained) == jax.tree.structure(kept) == jax.tree.structure(variables.stats)


@pytest.mark.parametrize("model", [model, from_linen(Deterministic())])
def test_linen_dropout_follows_the_key_and_is_off_in_eval(model):
    variables = model.init(jax.random.key(0), X)
    first, again, second = (
        model.apply(variables, X, train=True, key=jax.random.key(seed))[0] for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != second).any()
    without, _ = model.apply(variables, X, train=False)
    given, _ = model.apply(variables, X, train=False, key=jax.random.key(1))
    np.testing.assert_array_equal(without, given)


def test_linen_padded_rows_do_not_count(variables):
    padded = jnp.concatenate([X[:3], 100 * X[3:]])
    key = jax.random.key(0)
    _, stats = model.apply(variables, X[:3], train=True, key=key, mask=jnp.ones(3, bool))
    _, stats_padded = model.apply(variables, padded, train=True, key=key, mask=jnp.arange(5) < 3)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), stats_padded, stats)


def test_linen_under_transformations(variables):
    def loss(params, key):
        logits, stats = model.apply(Variables(params, variables.stats), X, train=True, key=key)
        return (logits**2).sum(), stats

    keys = jax.random.split(jax.random.key(1), 3)
    gradient = jax.grad(loss, has_aux=True)
    vmapped = jax.jit(jax.vmap(gradient, (None, 0)))(variables.params, keys)
    mapped = jax.jit(lambda p, k: jax.lax.map(lambda key: gradient(p, key), k))(variables.params, keys)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4), vmapped, mapped)


def test_linen_collections_that_nobody_would_keep():
    with pytest.raises(ValueError, match=r"got \['counter'\]"):
        from_linen(Counting()).init(jax.random.key(0), X)


def test_linen_without_statistics():
    plain = from_linen(linen.Dense(3))
    variables = plain.init(jax.random.key(0), X)
    assert variables.stats == ()
    assert plain.apply(variables, X, train=True, key=None, mask=None)[1] == ()


def test_functions():
    plain = from_functions(lambda key, x: [jax.random.normal(key, (x.shape[1], 3))], lambda p, x: x @ p[0])
    variables = plain.init(jax.random.key(0), X)
    logits, stats = plain.apply(variables, X, train=True, key=jax.random.key(0), mask=jnp.ones(5, bool))
    np.testing.assert_array_equal(logits, X @ variables.params[0])
    assert variables.stats == stats == ()
    assert plain.features is None


def test_parameters_must_be_floating_point():
    counts = from_functions(lambda key, x: {"w": jnp.zeros(3), "fc": {"n": jnp.zeros(3, int)}}, lambda p, x: x)
    with pytest.raises(ValueError, match="int32 at fc/n"):
        counts.init(jax.random.key(0), X)
