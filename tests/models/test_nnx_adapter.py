import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import PartitionSpec

from fedjax_geo.models import from_nnx
from fedjax_geo.types import Variables


class Full(nnx.Module):
    """A module with everything: a list, a norm that heeds masks, and dropout with its own stream."""

    def __init__(self, width, rngs):
        self.layers = nnx.List([nnx.Linear(width, width, rngs=rngs) for _ in range(11)])
        self.norm = nnx.BatchNorm(width, momentum=0.5, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.fc = nnx.Linear(width, 3, rngs=rngs)

    def features(self, x, mask=None):
        x = self.layers[10](self.layers[2](x))
        return self.dropout(self.norm(x, mask=None if mask is None else mask[:, None]))

    def __call__(self, x, mask=None):
        return self.fc(self.features(x, mask))


class Passed(nnx.Module):
    """Dropout whose randomness is passed by call."""

    def __init__(self, width, rngs):
        self.fc = nnx.Linear(width, 16, rngs=rngs)
        self.dropout = nnx.Dropout(0.5)

    def __call__(self, x, *, rngs=None):
        return self.dropout(self.fc(x), rngs=rngs)


X = jax.random.normal(jax.random.key(7), (5, 4))
full = from_nnx(lambda shape, rngs: Full(shape[0], rngs), features="features")
passed = from_nnx(lambda shape, rngs: Passed(shape[0], rngs))


@pytest.fixture(scope="module")
def variables():
    return full.init(jax.random.key(0), X)


def loss(params, stats, key, mask):
    logits, stats = full.apply(Variables(params, stats), X, train=True, key=key, mask=mask)
    return (logits**2).sum(), stats


def test_variables_are_dictionaries_with_names_for_keys(variables):
    assert set(variables.params) == {"layers", "norm", "fc"}
    assert set(variables.params["layers"]) == {str(i) for i in range(11)}
    assert set(variables.stats) == {"norm"}
    assert jax.tree.map(jnp.shape, variables.stats["norm"]) == {"mean": (4,), "var": (4,)}


def test_numbered_modules_are_not_mixed_up(variables):
    """Names sort as "10" < "2"; each must still find its own parameters."""
    layers, norm, fc = (variables.params[name] for name in ("layers", "norm", "fc"))
    x = X
    for name in ("2", "10"):
        x = x @ layers[name]["kernel"] + layers[name]["bias"][None]
    x = x * norm["scale"][None] / jnp.sqrt(1 + 1e-5)
    logits, _ = full.apply(variables, X, train=False)
    np.testing.assert_allclose(logits, x @ fc["kernel"] + fc["bias"][None], rtol=1e-5, atol=1e-6)


def test_apply_needs_no_init_of_the_same_model(variables):
    other = from_nnx(lambda shape, rngs: Full(shape[0], rngs))
    np.testing.assert_array_equal(
        other.apply(variables, X, train=False)[0], full.apply(variables, X, train=False)[0]
    )


def test_transformations_agree_and_leak_nothing(variables):
    """A model first used while traced, then everywhere else."""
    keys = jax.random.split(jax.random.key(1), 4)
    stacked = jax.tree.map(lambda x: jnp.stack([x] * 4), variables)
    mask = jnp.ones(5, bool)
    gradient = jax.grad(loss, has_aux=True)

    def client(args):
        own, key = args
        return gradient(own.params, own.stats, key, mask)

    with jax.check_tracer_leaks():
        vmapped = jax.jit(jax.vmap(lambda own, key: client((own, key))))(stacked, keys)
    mapped = jax.jit(lambda own, key: jax.lax.map(client, (own, key)))(stacked, keys)
    mesh = jax.make_mesh((4,), ("clients",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = PartitionSpec("clients")
    sharded = jax.jit(
        jax.shard_map(lambda own, key: jax.lax.map(client, (own, key)), mesh=mesh, in_specs=spec, out_specs=spec)
    )(stacked, keys)
    one = jax.jit(client)
    looped = jax.tree.map(lambda *x: jnp.stack(x), *[one((variables, key)) for key in keys])
    for other in (vmapped, mapped, sharded):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-4), looped, other)


@pytest.mark.parametrize("model", [full, passed])
def test_dropout_follows_the_key_and_is_off_in_eval(model):
    variables = model.init(jax.random.key(0), X)

    def logits(train, seed):
        key = None if seed is None else jax.random.key(seed)
        return model.apply(variables, X, train=train, key=key)[0]

    np.testing.assert_array_equal(logits(True, 1), logits(True, 1))
    assert (logits(True, 1) != logits(True, 2)).any()
    np.testing.assert_array_equal(logits(False, 1), logits(False, None))
    assert (logits(True, 1) != logits(False, 1)).any()


def test_statistics_move_in_training_only(variables):
    _, trained = full.apply(variables, X, train=True, key=jax.random.key(0))
    _, kept = full.apply(variables, X, train=False)
    assert (trained["norm"]["var"] != variables.stats["norm"]["var"]).all()
    assert kept is variables.stats


def test_statistics_of_numpy_are_left_alone(variables):
    """A module may write into an array in place, as JAX's cannot be."""
    given = jax.tree.map(np.array, variables.stats)
    _, trained = full.apply(Variables(variables.params, given), X, train=True, key=jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, given, variables.stats)
    assert (trained["norm"]["var"] != given["norm"]["var"]).all()


def test_padded_rows_do_not_count(variables):
    """Three true rows and two of padding give what three rows give."""
    model = from_nnx(lambda shape, rngs: Bare(shape[0], rngs))
    variables = model.init(jax.random.key(0), X)
    short = X[:3]
    padded = short[jnp.array([0, 1, 2, 0, 0])] * jnp.array([1, 1, 1, 100, -100.0])[:, None]
    logits, stats = model.apply(variables, short, train=True, mask=jnp.ones(3, bool))
    logits_padded, stats_padded = model.apply(variables, padded, train=True, mask=jnp.arange(5) < 3)
    np.testing.assert_allclose(logits_padded[:3], logits, rtol=1e-5, atol=1e-6)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), stats_padded, stats)


def test_a_batch_of_padding_alone_is_finite(variables):
    value, gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(
        variables.params, variables.stats, jax.random.key(0), jnp.zeros(5, bool)
    )
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves((value, gradient)))


class Bare(nnx.Module):
    """A norm and nothing random."""

    def __init__(self, width, rngs):
        self.norm = nnx.BatchNorm(width, rngs=rngs)

    def __call__(self, x, mask=None):
        return self.norm(x, mask=None if mask is None else mask[:, None])


def test_features_are_what_the_last_layer_sees(variables):
    features = full.features(variables, X, train=False, key=None, mask=None)
    fc = variables.params["fc"]
    logits, _ = full.apply(variables, X, train=False)
    np.testing.assert_allclose(features @ fc["kernel"] + fc["bias"][None], logits, rtol=1e-6)
    assert passed.features is None


def test_models_without_statistics_have_an_empty_tree():
    variables = passed.init(jax.random.key(0), X)
    assert variables.stats == ()
    assert passed.apply(variables, X, train=True, key=jax.random.key(0))[1] == ()


def test_init_is_a_function_of_the_key_and_the_shape():
    first, second = (full.init(jax.random.key(0), x).params for x in (X, X[:1] * 0))
    jax.tree.map(np.testing.assert_array_equal, first, second)
    kernels = [full.init(jax.random.key(seed), X).params["fc"]["kernel"] for seed in (0, 1)]
    assert (kernels[0] != kernels[1]).any()


def test_training_with_random_streams_needs_a_key(variables):
    with pytest.raises(ValueError, match="pass a key"):
        full.apply(variables, X, train=True)


class Holding(nnx.Module):
    def __init__(self, variable):
        self.count = variable

    def __call__(self, x):
        return x


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        (lambda: nnx.Param(jnp.arange(3)), "int32 at count"),
        (lambda: nnx.Variable(jnp.zeros(3)), r"other variables at \['count'\]"),
    ],
)
def test_what_a_model_may_hold(variable, message):
    model = from_nnx(lambda shape, rngs: Holding(variable()))
    with pytest.raises(ValueError, match=message):
        model.init(jax.random.key(0), X)
