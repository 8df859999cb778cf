"""CRAFT where clients are missing, broken, alone or in agreement, and CRAFT among other links."""

import craft_oracle as oracle
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_geo import layers, tree
from fedjax_geo.aggregators import craft, weighted_mean
from fedjax_geo.transforms import per_client

M, WIDTH, CUT = 5, 30, 12
UPDATES, WEIGHTS, PREVIOUS = oracle.cohort(0, M, WIDTH)
REST = np.arange(M) != 2  # everyone but client 2


def close(found, wanted, tolerance=1e-9):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance)


def without_client_2():
    return oracle.direction(UPDATES[REST], WEIGHTS[REST], PREVIOUS)


@pytest.mark.parametrize("broken", [0.0, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("weight", [None, 0.0])
def test_a_client_without_a_usable_update_is_left_out(broken, weight):
    """With its weight or without: the weights of the others are scaled to sum to one."""
    updates, weights = UPDATES.copy(), WEIGHTS.copy()
    updates[2] = broken
    weights[2] = weights[2] if weight is None else weight
    close(oracle.direction(updates, weights, PREVIOUS), without_client_2())


@pytest.mark.parametrize("broken", [0.0, np.nan])
def test_a_client_is_left_out_of_the_broken_group_only(broken):
    updates = UPDATES.copy()
    updates[2, :3] = np.nan if np.isnan(broken) else 0
    if broken == 0:
        updates[2, :CUT] = 0
    parts = oracle.two_groups(updates, CUT), WEIGHTS, oracle.two_groups(PREVIOUS, CUT)
    wanted = [
        oracle.craft_direction(UPDATES[REST][:, :CUT], WEIGHTS[REST], PREVIOUS[:CUT]),
        oracle.craft_direction(UPDATES[:, CUT:], WEIGHTS, PREVIOUS[CUT:]),
    ]
    close(oracle.flat(oracle.direction(*parts)), np.concatenate(wanted))


def test_a_weight_of_zero_asks_for_no_descent_but_no_harm_either():
    weights = np.where(REST, WEIGHTS, 0)
    step = oracle.direction(UPDATES, weights, PREVIOUS)
    close(UPDATES @ step / np.linalg.norm(UPDATES, axis=1), weights / weights.sum())


def test_weights_that_sum_to_zero_count_as_equal():
    equal = oracle.direction(UPDATES, np.full(M, 1 / M), PREVIOUS)
    close(oracle.direction(UPDATES, np.zeros(M), PREVIOUS), equal)


@pytest.mark.parametrize("broken", [0.0, np.nan])
def test_nobody_usable_gives_no_step_and_forgets_the_reference(broken):
    aggregator, update = oracle.compiled()
    state = aggregator.init(jnp.zeros(WIDTH))._replace(previous=jnp.asarray(PREVIOUS, jnp.float32))
    step, state = update(jnp.full((M, WIDTH), broken), state, weights=jnp.full(M, 1 / M))
    np.testing.assert_array_equal(step, np.zeros(WIDTH))
    np.testing.assert_array_equal(state.previous, np.zeros(WIDTH))


def test_one_client_has_its_own_length_and_two_of_the_same_do_not():
    """The jump in scale of the authors' rule: a raw update, then half of its unit vector."""
    one = oracle.direction(UPDATES[:1], WEIGHTS[:1], PREVIOUS)
    close(one, UPDATES[0])
    two = oracle.direction(UPDATES[[0, 0]], np.array([0.5, 0.5]))
    close(two, 0.5 * UPDATES[0] / np.linalg.norm(UPDATES[0]))


def test_updates_that_cancel_do_not_become_the_next_reference():
    updates = np.concatenate([UPDATES, -UPDATES])
    step = oracle.direction(updates, np.full(2 * M, 0.5 / M), dtype="float32")
    np.testing.assert_array_equal(step, np.zeros(WIDTH))


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_very_short_and_very_long_updates_in_float32(scale):
    close(oracle.direction(scale * UPDATES, WEIGHTS, PREVIOUS, dtype="float32"),
          oracle.direction(UPDATES, WEIGHTS, PREVIOUS), 1e-5)  # fmt: skip


def test_integer_leaves_are_not_projected():
    """A counter keeps its value and its type, and the floating-point leaves do not see it."""
    counter = np.arange(M) * 1000
    with jax.enable_x64(True):
        updates = {"w": jnp.asarray(UPDATES), "steps": jnp.asarray(counter), "on": jnp.ones(M, bool)}
        aggregator, update = oracle.compiled(layers=layers.model)
        state = aggregator.init(jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), updates))
        step, after = update(updates, state, weights=jnp.asarray(WEIGHTS))
        assert jax.tree.map(lambda leaf: leaf.dtype, after) == jax.tree.map(lambda leaf: leaf.dtype, state)
        close(step["w"], oracle.craft_direction(UPDATES, WEIGHTS))
    assert (int(step["steps"]), bool(step["on"])) == (0, False)


def test_a_scalar_parameter_stays_a_scalar():
    updates = {"temperature": UPDATES[:, 0], "fc": {"kernel": UPDATES[:, 1:]}}
    previous = {"temperature": PREVIOUS[0], "fc": {"kernel": PREVIOUS[1:]}}
    step = oracle.direction(updates, WEIGHTS, previous)
    assert step["temperature"].shape == ()
    close(step["temperature"], oracle.craft_direction(UPDATES[:, :1], WEIGHTS, PREVIOUS[:1])[0])
    close(step["fc"]["kernel"], oracle.craft_direction(UPDATES[:, 1:], WEIGHTS, PREVIOUS[1:]))


def test_the_shape_of_a_leaf_does_not_matter():
    shaped = oracle.direction(UPDATES.reshape(M, 5, 2, 3), WEIGHTS, PREVIOUS.reshape(5, 2, 3))
    assert shaped.shape == (5, 2, 3)
    close(shaped.ravel(), oracle.direction(UPDATES, WEIGHTS, PREVIOUS))


def test_weights_by_leaf_count_as_their_mean_in_a_group():
    """FedVG's weights per tensor are targets of CRAFT, which has one per group."""
    rng = np.random.default_rng(1)
    rows = rng.dirichlet(np.ones(M), size=3)
    weights = {"a": {"kernel": rows[0], "bias": rows[1]}, "b": {"kernel": rows[2]}}
    parts = oracle.two_groups(UPDATES, CUT), weights, oracle.two_groups(PREVIOUS, CUT)
    wanted = [
        oracle.craft_direction(UPDATES[:, :CUT], rows[:2].mean(axis=0), PREVIOUS[:CUT]),
        oracle.craft_direction(UPDATES[:, CUT:], rows[2], PREVIOUS[CUT:]),
    ]
    close(oracle.flat(oracle.direction(*parts)), np.concatenate(wanted))


@pytest.mark.parametrize("by_leaf", [False, True])
def test_craft_on_the_body_and_a_mean_on_the_head(by_leaf):
    """``optax.partition`` inside a chain, with one weight per client and with one per client and leaf."""
    params = {"body": {"kernel": jnp.zeros(CUT)}, "head": {"kernel": jnp.zeros(WIDTH - CUT)}}
    parts = {"body": craft(), "head": weighted_mean()}
    server = optax.chain(
        optax.partition(parts, lambda tree: {k: jax.tree.map(lambda _: k, v) for k, v in tree.items()}),
        optax.sgd(0.5),
    )
    uniform = np.full(M, 1 / M)
    head = uniform if by_leaf else WEIGHTS
    weights = {"body": {"kernel": jnp.asarray(WEIGHTS)}, "head": {"kernel": jnp.asarray(head)}}
    weights = weights if by_leaf else jnp.asarray(WEIGHTS)
    state = server.init(params)
    step_fn = jax.jit(server.update)
    previous = None
    for updates in (UPDATES, UPDATES[::-1] ** 2):
        stacked = {"body": {"kernel": updates[:, :CUT]}, "head": {"kernel": updates[:, CUT:]}}
        stacked = jax.tree.map(jnp.asarray, stacked)
        step, state = step_fn(stacked, state, params, weights=weights, round=jnp.int32(0))
        previous = oracle.craft_direction(updates[:, :CUT], WEIGHTS, previous)
        close(step["body"]["kernel"], -0.5 * previous, 1e-5)
        close(step["head"]["kernel"], -0.5 * head @ updates[:, CUT:], 1e-6)


def test_clipping_each_client_first_changes_nothing():
    """Only directions of updates count."""
    server = optax.chain(per_client(optax.clip_by_global_norm(1e-3)), craft())
    updates, weights = jnp.asarray(UPDATES, jnp.float32), jnp.asarray(WEIGHTS, jnp.float32)
    step, _ = jax.jit(server.update)(updates, server.init(updates[0]), updates[0], weights=weights)
    close(step, oracle.craft_direction(UPDATES, WEIGHTS), 1e-5)


@pytest.mark.parametrize("solver", oracle.SOLVERS)
def test_mapping_over_seeds_equals_separate_runs(solver):
    cohorts = [oracle.cohort(seed, M, WIDTH) for seed in range(3)]
    updates, weights, previous = (jnp.asarray(np.stack(x), jnp.float32) for x in zip(*cohorts, strict=True))
    aggregator, _ = oracle.compiled(solver=solver)
    state = jax.vmap(aggregator.init)(previous)._replace(previous=previous)
    together, after = jax.jit(jax.vmap(aggregator.update))(updates, state, weights=weights)
    alone = [oracle.direction(*each, solver=solver, dtype="float32") for each in cohorts]
    close(together, np.stack(alone), 1e-6)
    close(after.previous, together, 0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("make", [craft, weighted_mean])
def test_state_and_step_keep_their_types_so_that_one_trace_is_enough(make, dtype):
    with jax.enable_x64(dtype == "float64"):
        aggregator, traces = make(), []
        updates = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), oracle.two_groups(UPDATES, CUT))

        @jax.jit
        def update(updates, state, weights):
            traces.append(None)
            return aggregator.update(updates, state, weights=weights)

        state = aggregator.init(tree.take(updates, 0))
        for _ in range(3):
            step, state = update(updates, state, jnp.asarray(WEIGHTS, jnp.float32))
        assert {leaf.dtype for leaf in jax.tree.leaves((step, state))} == {jnp.dtype(dtype)}
    assert len(traces) == 1


def test_half_precision_parameters_are_solved_in_single_precision():
    updates, weights = jnp.asarray(UPDATES, jnp.bfloat16), jnp.asarray(WEIGHTS, jnp.float32)
    aggregator, update = oracle.compiled()
    step, _ = update(updates, aggregator.init(updates[0]), weights=weights)
    wanted = oracle.craft_direction(np.asarray(updates, float), WEIGHTS)
    np.testing.assert_allclose(np.asarray(step, float), wanted, rtol=1e-2, atol=1e-4)


def test_leaves_that_disagree_about_the_cohort_are_an_error():
    aggregator = craft()
    state = aggregator.init({"a": jnp.zeros(2), "b": jnp.zeros(2)})
    with pytest.raises(ValueError, match=r"one common leading client axis.*3, 4"):
        aggregator.update({"a": jnp.ones((3, 2)), "b": jnp.ones((4, 2))}, state, weights=jnp.ones(3) / 3)
