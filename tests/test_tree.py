import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_geo import tree

M = 4
RNG = np.random.default_rng(0)
STACKED = {"a": RNG.normal(size=(M, 2, 3)), "b": {"c": RNG.normal(size=M), "d": RNG.normal(size=(M, 5))}}
SINGLE = {"a": RNG.normal(size=(2, 3)), "b": {"c": RNG.normal(size=()), "d": RNG.normal(size=5)}}
ROWS = np.concatenate([STACKED["a"].reshape(M, 6), STACKED["b"]["c"][:, None], STACKED["b"]["d"]], axis=1)
ROW = np.concatenate([SINGLE["a"].ravel(), SINGLE["b"]["c"].ravel(), SINGLE["b"]["d"]])

stacked = jax.tree.map(jnp.asarray, jax.tree.map(np.float32, STACKED))
single = jax.tree.map(jnp.asarray, jax.tree.map(np.float32, SINGLE))


def close(found, wanted, tolerance=1e-5):
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def test_num_clients_is_the_common_leading_axis():
    assert tree.num_clients(stacked) == M


@pytest.mark.parametrize(
    ("leaves", "found"),
    [
        ({}, r"\[\]"),
        ({"a": jnp.zeros((3, 2)), "b": jnp.zeros(4)}, r"\[3, 4\]"),
        ({"a": jnp.zeros(())}, ""),
        ({"a": jnp.zeros(()), "b": jnp.zeros(3)}, ""),
    ],
)
def test_leaves_without_a_common_leading_axis_are_an_error(leaves, found):
    with pytest.raises(ValueError, match=f"one common leading client axis, got lengths {found}"):
        tree.num_clients(leaves)


def test_inner_products_are_those_of_the_flat_vectors():
    close(tree.gram(stacked), ROWS @ ROWS.T)
    close(tree.dots(stacked, single), ROWS @ ROW)
    close(tree.norms(stacked), np.linalg.norm(ROWS, axis=1))
    close(tree.norm(single), np.linalg.norm(ROW))


def test_rows_of_one_leaf():
    leaf, rows = stacked["a"], ROWS[:, :6]
    close(tree.gram_rows(leaf), rows @ rows.T)
    close(tree.dot_rows(leaf, single["a"]), rows @ ROW[:6])
    close(tree.squared_norm_rows(leaf), np.square(rows).sum(1))
    close(tree.combine_rows(jnp.arange(4.0), leaf), (np.arange(4) @ rows).reshape(2, 3))
    assert tree.combine_rows(jnp.arange(4.0), stacked["b"]["c"]).shape == ()


def test_sums_by_group():
    labels = {"a": "y", "b": {"c": "x", "d": "y"}}
    found = tree.grouped(tree.squared_norm_rows, labels, stacked)
    assert list(found) == ["x", "y"]
    close(found["x"], np.square(ROWS[:, 6]))
    close(found["y"], np.square(ROWS).sum(1) - np.square(ROWS[:, 6]))


def test_names_of_leaves():
    assert tree.paths(stacked) == ["a", "b/c", "b/d"]


def test_weights_are_scaled_over_the_clients_that_count():
    found = tree.normalize(jnp.array([1.0, 3.0, 4.0, 2.0]), jnp.array([True, True, False, True]))
    close(found, [1 / 6, 0.5, 0, 1 / 3])
    assert found[2] == 0


@pytest.mark.parametrize("weight", [1.0, np.nan, np.inf])
def test_weights_of_clients_that_do_not_count_may_be_anything(weight):
    found = tree.normalize(jnp.array([1.0, weight]), jnp.array([True, False]))
    np.testing.assert_array_equal(found, [1, 0])


@pytest.mark.parametrize(
    ("weights", "counted"), [([1.0, 2.0], [False, False]), ([0.0, 0.0], [True, True]), ([0.0, 2.0], [True, False])]
)
def test_weights_are_zero_where_nobody_counts(weights, counted):
    np.testing.assert_array_equal(tree.normalize(jnp.array(weights), jnp.array(counted)), [0, 0])


def test_weights_by_leaf_are_scaled_leaf_by_leaf():
    weights = {"a": jnp.array([1.0, 1, 2]), "b": jnp.array([5.0, 0, 1])}
    found = tree.normalize(weights, jnp.array([True, True, False]))
    close(found["a"], [0.5, 0.5, 0])
    close(found["b"], [1, 0, 0])
    close(tree.overall(found), [0.75, 0.25, 0])
    close(tree.overall(found["a"]), found["a"])


def test_one_weight_per_client_serves_every_leaf():
    weights = jnp.arange(4.0)
    spread = tree.spread(weights, stacked)
    assert jax.tree.structure(spread) == jax.tree.structure(stacked)
    assert all(leaf is weights for leaf in jax.tree.leaves(spread))


def test_weights_by_leaf_find_their_leaf_in_a_part_of_the_tree():
    weights = jax.tree.unflatten(jax.tree.structure(stacked), [jnp.full(M, i) for i in range(3)])
    assert jax.tree.map(lambda leaf: int(leaf[0]), tree.spread(weights, stacked)) == {
        "a": 0,
        "b": {"c": 1, "d": 2},
    }
    part = {"b": {"d": stacked["b"]["d"]}}
    assert jax.tree.map(lambda leaf: int(leaf[0]), tree.spread(weights, part)) == {"b": {"d": 2}}


def test_mean_with_weights_by_leaf():
    weights = jax.tree.map(lambda _: RNG.dirichlet(np.ones(M)), STACKED)
    found = tree.weighted_mean(jax.tree.map(jnp.float32, weights), stacked)
    for leaf, w, rows in zip(*map(jax.tree.leaves, (found, weights, STACKED)), strict=True):
        assert leaf.shape == rows.shape[1:]
        close(leaf, np.tensordot(w, rows, 1))


def test_statistics_are_averaged_and_counters_take_their_maximum():
    stats = {
        "var": jnp.array([1.0, 3.0, 99.0]),
        "batches": jnp.array([7, 4, 100]),
        "on": jnp.array([False, True, True]),
    }
    found = tree.average_stats(jnp.array([0.5, 0.5, 0.0]), stats)
    assert float(found["var"]) == 2
    assert (found["batches"].dtype, int(found["batches"])) == (jnp.int32, 7)
    assert (found["on"].dtype, bool(found["on"])) == (jnp.bool_, True)


def test_counters_of_clients_without_weight_do_not_count():
    found = tree.average_stats(
        jnp.array([1.0, 0.0]), {"batches": jnp.array([-3, 5]), "var": jnp.array([2.0, jnp.nan])}
    )
    assert int(found["batches"]) == -3
    assert float(found["var"]) == 2


def test_statistics_of_a_model_without_any():
    assert tree.average_stats(jnp.ones(3) / 3, ()) == ()


def test_clients_that_are_finite():
    leaves = {"a": stacked["a"].at[1, 0, 2].set(jnp.nan), "b": stacked["b"]["c"].at[3].set(jnp.inf)}
    leaves["count"] = jnp.arange(M)
    np.testing.assert_array_equal(tree.finite_clients(leaves), [True, False, True, False])


def test_leaf_by_leaf_arithmetic():
    jax.tree.map(np.testing.assert_array_equal, tree.subtract(tree.add(single, single), single), single)
    jax.tree.map(np.testing.assert_array_equal, tree.select(jnp.array(False), stacked, stacked), stacked)
    zeros = tree.zeros_like(single)
    jax.tree.map(np.testing.assert_array_equal, tree.select(jnp.array(True), zeros, single), zeros)
    taken = tree.take(stacked, jnp.array([3, 0]))
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[np.array([3, 0])]), taken, stacked)
    types = {"a": jnp.zeros(2, jnp.bfloat16), "b": jnp.zeros(2, jnp.int32)}
    assert jax.tree.map(lambda leaf: leaf.dtype, tree.zeros_like(types)) == {"a": jnp.bfloat16, "b": jnp.int32}
