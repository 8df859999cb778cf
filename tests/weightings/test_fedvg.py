"""FedVG's examples that can be checked by hand, and what its weights always obey."""

import fedvg_setup as setup
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toys
from flax import nnx

from fedjax_geo import layers
from fedjax_geo.models import batch_norm, from_nnx
from fedjax_geo.objective import cross_entropy
from fedjax_geo.types import Examples, Model, Task, Variables
from fedjax_geo.weightings import client_update, fedvg, l1, l2, spectral_norm, validation_gradient

CLIENTS = {  # two clients, one tensor in a block and one in the classifier
    "layer1": {"W": np.array([[[1.0, -2], [0, 2]], [[2, 0], [0, -1]]])},
    "classifier": {"b": np.array([[3.0, -4], [0, 1]])},
}
ROOT5 = 5**0.5


def weights_of(updates, dtype="float64", **options):
    with jax.enable_x64(dtype == "float64"):
        updates = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), updates)
        return jax.tree.map(np.asarray, setup.weigh(fedvg(measure=client_update(), **options), updates))


def close(found, wanted, tolerance):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance)


# The eps of 1e-8 that is added to norms moves the weights of these examples by up to 1.2e-9.
precisions = pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 2e-9), ("float32", 1e-5)])


@precisions
@pytest.mark.parametrize(
    ("norm", "first"), [(l1, 0.25), (l2, (1 + ROOT5) / (9 + ROOT5)), (spectral_norm, 3 / (3 + 7.920809626))]
)
def test_one_weight_per_client(norm, first, dtype, tolerance):
    found = weights_of(CLIENTS, dtype, norm=norm)
    close(found, [first, 1 - first], tolerance)
    if norm is l2:
        close(found, [0.288007156, 0.711992844], tolerance)


@precisions
@pytest.mark.parametrize("grouping", [layers.leaf, layers.block])
@pytest.mark.parametrize(
    ("norm", "first", "second"),
    [(l1, 0.375, 0.125), (l2, 0.427050983, 1 / 6), (spectral_norm, 0.406437183, 1 / 6)],
)
def test_one_weight_per_client_and_tensor(norm, first, second, grouping, dtype, tolerance):
    """By leaf and by block, which are the same here."""
    found = weights_of(CLIENTS, dtype, norm=norm, layers=grouping)
    close(found["layer1"]["W"], [first, 1 - first], tolerance)
    close(found["classifier"]["b"], [second, 1 - second], tolerance)


def test_norms_are_summed_inside_a_block():
    block = {"layer1": {"conv": {"kernel": CLIENTS["layer1"]["W"]}, "fc": {"bias": CLIENTS["classifier"]["b"]}}}
    blocks = weights_of(block | {"head": CLIENTS["layer1"]["W"]}, layers=layers.block)
    for leaf in jax.tree.leaves(blocks["layer1"]):
        close(leaf, [0.25, 0.75], 1e-9)
    close(blocks["head"], [0.375, 0.625], 1e-9)


# W: gradient of the summed loss over two batches divided by their number, its L1 and its L2 norm
A, B = 0.384470711, 0.115529289
MODELS = [
    ([[1, 0], [0, 1]], [[-A, -B], [A, B]], 1.0, 0.567740687),
    ([[0, 1], [1, 0]], [[-0.615529289, B], [0.615529289, -B]], 1.462117157, 0.885689926),
    ([[0, 0], [0, 0]], [[-0.5, 0], [0.5, 0]], 1.0, 0.707106781),
]
LINEAR = setup.linear_task()


def linear_score(weighting, kernel, examples=setup.VALIDATION, task=LINEAR, key=setup.KEY, stats=()):
    return weighting.score(task, Variables({"W": jnp.asarray(kernel)}, stats), None, examples, key)


@precisions
def test_gradients_of_a_linear_softmax(dtype, tolerance):
    """Three validation examples in batches of two and one: the mean gradient is 2/3 of the batches' mean."""
    with jax.enable_x64(dtype == "float64"):
        examples = Examples(setup.VALIDATION.x.astype(dtype), setup.VALIDATION.y)
        for kernel, gradient, sum_of_absolutes, length in MODELS:
            variables = Variables({"W": jnp.array(kernel, dtype)})
            found = validation_gradient(batch_size=2).measure(LINEAR, variables, None, examples, setup.KEY)
            close(1.5 * found["W"], gradient, tolerance)
            close(1.5 * l1(found["W"]), sum_of_absolutes, tolerance)
            close(1.5 * l2(found["W"]), length, tolerance)


@precisions
@pytest.mark.parametrize(
    ("norm", "wanted"),
    [(l1, (0.372586609, 0.254826782, 0.372586609)), (l2, (0.409178401, 0.262289568, 0.328532031))],
)
def test_weights_of_linear_softmax_models(norm, wanted, dtype, tolerance):
    with jax.enable_x64(dtype == "float64"):
        weighting = fedvg(measure=validation_gradient(batch_size=2), norm=norm)
        examples = Examples(setup.VALIDATION.x.astype(dtype), setup.VALIDATION.y)
        score = jnp.stack([linear_score(weighting, jnp.array(k, dtype), examples) for k, *_ in MODELS])
        weights, _ = weighting.weigh(setup.info(score), ())
    close(weights, wanted, tolerance)


def updates(seed, m=5):
    rng = np.random.default_rng(seed)
    return {"a": {"kernel": rng.normal(size=(m, 3, 4)), "bias": rng.normal(size=(m, 4))}, "t": rng.normal(size=m)}


every_grouping = pytest.mark.parametrize("grouping", [layers.model, layers.block, layers.module, layers.leaf])
every_norm = pytest.mark.parametrize("norm", [l1, l2, spectral_norm])


@every_grouping
@every_norm
@pytest.mark.parametrize("seed", [0, 1])
def test_weights_are_positive_and_sum_to_one_in_every_layer(grouping, norm, seed):
    found = weights_of(updates(seed), norm=norm, layers=grouping)
    assert isinstance(found, np.ndarray) == (grouping is layers.model)
    for row in jax.tree.leaves(found):
        assert row.shape == (5,)
        assert (row > 0).all()
        close(row.sum(), 1, 1e-12)


@every_grouping
@every_norm
def test_weights_follow_the_clients_and_not_the_scale(grouping, norm):
    given = updates(0)
    order = np.array([3, 1, 4, 0, 2])
    found = weights_of(given, norm=norm, layers=grouping)
    moved = weights_of(jax.tree.map(lambda leaf: 10 * leaf[order], given), norm=norm, layers=grouping)
    jax.tree.map(lambda a, b: close(b, a[order], 1e-7), found, moved)


@every_norm
def test_a_smaller_norm_is_a_larger_weight(norm):
    scales = np.array([3.0, 1.0, 2.0, 0.5])
    given = jax.tree.map(lambda leaf: scales.reshape(-1, *[1] * (leaf.ndim - 1)) * leaf[:1], updates(0))
    found = weights_of(given, norm=norm)
    assert list(np.argsort(found)) == list(np.argsort(-scales))
    close(found, (1 / scales) / (1 / scales).sum(), 1e-7)


@every_grouping
def test_equal_clients_count_the_same_whatever_their_sizes(grouping):
    given = jax.tree.map(lambda leaf: jnp.asarray(np.repeat(leaf[:1], 4, axis=0), jnp.float32), updates(0))
    weighting = fedvg(measure=client_update(), layers=grouping)
    params = jax.tree.map(lambda leaf: leaf[0], given)
    score = jax.vmap(lambda u: weighting.score(None, Variables(params), u, None, setup.KEY))(given)
    found, _ = weighting.weigh(setup.info(score, num_examples=[1, 10, 100, 1000]), ())
    for row in jax.tree.leaves(found):
        close(row, np.full(4, 0.25), 1e-6)


@every_grouping
def test_a_single_client_has_all_the_weight(grouping):
    for row in jax.tree.leaves(weights_of(updates(0, m=1), layers=grouping)):
        close(row, [1], 0)


def test_score_of_a_client_is_the_l1_norm_of_its_flat_gradient():
    given = jax.tree.map(lambda leaf: jnp.asarray(leaf[0], jnp.float32), updates(0))
    found = fedvg(measure=client_update()).score(None, Variables(given), given, None, setup.KEY)
    close(found, sum(np.abs(leaf).sum() for leaf in jax.tree.leaves(given)), 1e-4)


@every_norm
def test_by_leaf_with_a_single_leaf_is_by_client(norm):
    one = {"W": updates(0)["a"]["kernel"]}
    np.testing.assert_array_equal(
        weights_of(one, norm=norm, layers=layers.leaf), weights_of(one, norm=norm, layers=layers.model)
    )


def test_spectral_norm_of_a_convolution_is_that_of_its_matrix():
    kernel = np.random.default_rng(0).normal(size=(3, 3, 2, 5))
    wanted = np.linalg.svd(kernel.reshape(18, 5), compute_uv=False)[0]
    close(spectral_norm(jnp.asarray(kernel, jnp.float32)), wanted, 1e-5)
    close(spectral_norm(jnp.array(-3.0)), 3, 0)


def weights_for(norms, **options):
    with jax.enable_x64(True):
        found, _ = fedvg(measure=client_update(), **options).weigh(setup.info(jnp.array(norms)), ())
        return np.asarray(found)


def test_a_gradient_that_vanishes_takes_the_weight():
    found = weights_for([0.0, 1.0, 2.0])
    close(found[0], 0.99999998, 1e-8)
    close(weights_for([0.0, 2.0]), [0.999999995, 5e-9], 1e-12)
    close(weights_for([0.0, 0.0, 0.0]), np.full(3, 1 / 3), 1e-12)


def test_a_floor_keeps_one_client_from_owning_the_model():
    """Norms below a tenth of the median, 1, count as .1."""
    close(weights_for([0.0, 1.0, 2.0], floor=0.1), np.array([10, 1, 0.5]) / 11.5, 1e-6)


def test_the_floor_heeds_only_clients_that_count():
    weighting = fedvg(measure=client_update(), floor=1.0)
    norms = jnp.array([1.0, 3.0, jnp.nan, 900.0, 901.0])
    found, _ = weighting.weigh(setup.info(norms, num_examples=[5, 5, 5, 0, 0]), ())
    close(found, np.array([1 / 2, 1 / 3, 0, 0, 0]) / (1 / 2 + 1 / 3), 1e-6)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_model_that_is_not_finite_gets_no_weight(broken):
    close(weights_for([1.0, broken, 3.0]), [0.75, 0, 0.25], 1e-7)


def test_clients_without_examples_get_no_weight():
    found, _ = fedvg(measure=client_update()).weigh(setup.info(jnp.array([1.0, 0.0, 3.0]), [4, 0, 9]), ())
    close(found, [0.75, 0, 0.25], 1e-6)


def test_validation_batches_do_not_change_the_score():
    """131 examples by 16, 64 and all at once; dropout is off, so keys do not matter either."""
    examples, task = setup.random_examples(131), setup.linear_task(noise=1.0)
    kernel = np.random.default_rng(1).normal(size=(3, 4))
    found = [
        linear_score(
            fedvg(measure=validation_gradient(batch_size)), kernel, examples, task, jax.random.key(batch_size)
        )
        for batch_size in (16, 64, 500)
    ]
    np.testing.assert_allclose(found, np.full(3, found[0]), rtol=1e-5)
    again = linear_score(fedvg(measure=validation_gradient(16)), kernel, examples, task)
    assert again == found[0]


def test_repeating_the_validation_set_does_not_change_the_score():
    examples, kernel = setup.random_examples(20), np.random.default_rng(1).normal(size=(3, 4))
    thrice = Examples(jnp.tile(examples.x, (3, 1)), jnp.tile(examples.y, 3))
    once, repeated = (linear_score(fedvg(), kernel, given) for given in (examples, thrice))
    np.testing.assert_allclose(repeated, once, rtol=1e-5)


def test_training_mode_is_the_callers_choice():
    """As in the authors' code dropout may be on while clients are scored; statistics that move are dropped."""
    examples, task = setup.random_examples(20), setup.linear_task(noise=1.0)
    weighting = fedvg(measure=validation_gradient(train=True))
    kernel, stats = np.random.default_rng(1).normal(size=(3, 4)), {"count": jnp.zeros((), jnp.int32)}
    scores = [linear_score(weighting, kernel, examples, task, jax.random.key(seed), stats) for seed in (0, 0, 1)]
    assert scores[0] == scores[1]
    assert abs(scores[0] - scores[2]) > 1e-3


class Normed(nnx.Module):
    def __init__(self, width, rngs):
        self.fc1 = nnx.Linear(width, 3, rngs=rngs)
        self.norm1 = batch_norm()(3, rngs)
        self.fc2 = nnx.Linear(3, 3, rngs=rngs)

    def __call__(self, x, mask):
        return self.fc2(self.norm1(self.fc1(x), mask=mask))


NORMED = from_nnx(lambda shape, rngs: Normed(shape[0], rngs))


def normed_loss(flat, unravel, stats, x, y, batch_size):
    """Mean loss in NumPy, float64; by the statistics of each batch where none are given."""
    p, total = unravel(flat), 0.0
    for start in range(0, len(y), batch_size):
        z = x[start : start + batch_size] @ p["fc1"]["kernel"] + p["fc1"]["bias"]
        mean, var = (z.mean(0), z.var(0)) if stats is None else (stats["mean"], stats["var"])
        z = (z - mean) / np.sqrt(var + 1e-5) * p["norm1"]["scale"] + p["norm1"]["bias"]
        logits = z @ p["fc2"]["kernel"] + p["fc2"]["bias"]
        labels = y[start : start + batch_size]
        total += (np.log(np.exp(logits).sum(1)) - logits[np.arange(len(labels)), labels]).sum()
    return total / len(y)


@pytest.mark.parametrize("train", [None, False])
def test_a_batch_norm_takes_the_statistics_of_each_validation_batch_unless_told_otherwise(train):
    """Ten examples in batches of four; gradients by central differences."""
    examples = setup.random_examples(10)
    variables = NORMED.init(setup.KEY, examples.x)
    variables = variables._replace(stats={"norm1": {"mean": jnp.full(3, 0.5), "var": jnp.full(3, 2.0)}})
    task = Task(NORMED, toys.as_stored, cross_entropy)
    found = validation_gradient(4, train=train).measure(task, variables, None, examples, setup.KEY)

    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), variables.params)
    leaves, structure = jax.tree.flatten(params)
    cuts = np.cumsum([leaf.size for leaf in leaves])[:-1]

    def unravel(flat):
        parts = [part.reshape(leaf.shape) for part, leaf in zip(np.split(flat, cuts), leaves, strict=True)]
        return jax.tree.unflatten(structure, parts)

    stats = None if train is None else {"mean": 0.5, "var": 2.0}
    given = (unravel, stats, np.asarray(examples.x, np.float64), np.asarray(examples.y), 4)
    flat = np.concatenate([leaf.ravel() for leaf in leaves])
    steps = 1e-6 * np.eye(len(flat))
    wanted = [(normed_loss(flat + s, *given) - normed_loss(flat - s, *given)) / 2e-6 for s in steps]
    found = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found)])
    close(found, wanted, 2e-6)


def test_statistics_of_layerwise_weights_are_averaged_by_the_mean_over_the_tensors():
    """Loss ``x a + z b``: by norms of updates client k has the weights 1 / |x_k| and 1 / |z_k|, normalised."""

    def apply(variables, x, *, train, key, mask):
        p = variables.params
        return (x[:, 0] * p["a"] + x[:, 1] * p["b"])[:, None], {"var": x[0, 2]} if train else variables.stats

    zero = jnp.zeros(())
    model = Model(lambda key, x: Variables({"a": zero, "b": zero}, {"var": zero}), apply)
    data = toys.federation([[[1.0, 4.0, 10.0]], [[3.0, 1.0, 20.0]]])
    method = toys.averaging(weighting=fedvg(measure=client_update(), layers=layers.leaf))
    state, _ = toys.run(method, model, data)
    weights = np.array([[3 / 4, 1 / 4], [1 / 5, 4 / 5]])  # of a, of b
    assert float(state.variables.stats["var"]) == pytest.approx(weights.mean(0) @ [10, 20], rel=1e-5)
    assert float(state.variables.params["a"]) == pytest.approx(-0.1 * weights[0] @ [1, 3], rel=1e-5)
    assert float(state.variables.params["b"]) == pytest.approx(-0.1 * weights[1] @ [4, 1], rel=1e-5)


@pytest.mark.parametrize("examples", [None, Examples(jnp.zeros((0, 2)), jnp.zeros(0, jnp.int32))])
def test_no_validation_examples_are_an_error_that_says_so(examples):
    weighting = fedvg()
    assert weighting.needs_server_data
    with pytest.raises(ValueError, match="needs server data: give the federation a validation set"):
        linear_score(weighting, np.eye(2), examples)


def test_norms_of_updates_need_no_validation_examples():
    assert not fedvg(measure=client_update()).needs_server_data


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: fedvg(eps=0.0), "eps must be"),
        (lambda: fedvg(floor=-0.1), "floor must be"),
        (lambda: validation_gradient(0), "batch_size must be"),
    ],
)
def test_arguments_out_of_range_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()
