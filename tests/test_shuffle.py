"""The position-by-position permutation is a permutation, and a random one."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_geo.batches import Work, serve
from fedjax_geo.shuffle import permuted
from fedjax_geo.types import Examples


def many(n, draws, positions=None):
    positions = jnp.arange(n) if positions is None else positions
    keys = jax.random.split(jax.random.key(7), draws)
    return np.asarray(jax.jit(jax.vmap(lambda k, n: permuted(k, positions, n), (0, None)))(keys, n))


def chi_square_z(counts):
    """Standardised chi-square statistic against equal probabilities."""
    expected = counts.mean()
    freedom = counts.size - 1
    return (((counts - expected) ** 2 / expected).sum() - freedom) / np.sqrt(2 * freedom)


@pytest.mark.parametrize("n", [1, 2, 3, 17, 1000])
def test_every_item_comes_once(n):
    for row in many(n, 5):
        np.testing.assert_array_equal(np.sort(row), np.arange(n))


def test_all_permutations_of_four_are_equally_likely():
    rows = many(4, 24_000)
    code = {p: i for i, p in enumerate(itertools.permutations(range(4)))}
    counts = np.bincount([code[tuple(r)] for r in rows], minlength=24)
    assert abs(chi_square_z(counts)) < 4


def test_places_and_pairs_are_uniform():
    n = 23
    rows = many(n, 20_000)
    assert abs(chi_square_z(np.bincount(rows[:, 5], minlength=n))) < 4
    pairs = np.bincount(rows[:, 2] * n + rows[:, 9], minlength=n * n).reshape(n, n)
    assert np.all(np.diag(pairs) == 0)
    assert abs(chi_square_z(pairs[~np.eye(n, dtype=bool)])) < 4
    steps = (rows[:, 1:] - rows[:, :-1]) % n
    assert abs(chi_square_z(np.bincount(steps.ravel(), minlength=n)[1:])) < 4


def test_the_number_of_items_may_be_static_or_traced():
    static = jax.jit(lambda k: permuted(k, jnp.arange(1), 1))(jax.random.key(0))
    assert static.tolist() == [0]
    key = jax.random.key(3)
    np.testing.assert_array_equal(permuted(key, jnp.arange(9), 9), permuted(key, jnp.arange(9), jnp.int32(9)))


def epochs(size, work, key=0, capacity=11):
    examples = Examples(jnp.arange(100.0, 100 + capacity), jnp.zeros(capacity, jnp.int32))
    indices = jnp.arange(capacity, dtype=jnp.int32)
    batches = serve(examples, indices, jnp.int32(size), jax.random.key(key), work)
    served = [batches.get(jnp.int32(k)) for k in range(int(batches.num_steps))]
    return [np.asarray(b.x)[np.asarray(b.mask)] for b in served]


def test_an_epoch_serves_every_example_once_and_each_epoch_in_another_order():
    served = epochs(11, Work(batch_size=4, epochs=2))
    assert [len(s) for s in served] == [4, 4, 3, 4, 4, 3]
    first, second = np.concatenate(served[:3]), np.concatenate(served[3:])
    for epoch in (first, second):
        np.testing.assert_array_equal(np.sort(epoch), np.arange(100.0, 111))
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, np.concatenate(epochs(11, Work(batch_size=4), key=1)))


def test_steps_go_on_through_new_epochs():
    served = epochs(5, Work(batch_size=4, epochs=None, steps=5))
    assert [len(s) for s in served] == [4, 1, 4, 1, 4]


def test_no_examples_no_steps():
    assert epochs(0, Work()) == [] and epochs(0, Work(epochs=None, steps=4)) == []
