"""Top-k and stochastic quantisation. Limits of random tests are five standard deviations of what is measured."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_geo.transforms import quantize, quantize_bytes, top_k, top_k_bytes

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


def send(link, updates, ids=None, key=KEY):
    updates = jax.tree.map(jnp.asarray, updates)
    m = jax.tree.leaves(updates)[0].shape[0]
    ids = jnp.arange(m) if ids is None else jnp.asarray(ids)
    params = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), updates)
    sent, _ = link.update(updates, link.init(params), params, client_ids=ids, key=key)
    return sent


# --- top-k ---------------------------------------------------------------------------------------------------


def test_the_largest_entries_of_each_tensor_are_sent():
    updates = {
        "w": np.float32([[[1, -5, 2], [0.5, 4, -3]], [[0, 0, 0], [0, 0, 1e-9]]]),
        "t": np.float32([7, -8]),
    }
    sent = send(top_k(0.5), updates)
    np.testing.assert_array_equal(sent["w"][0], np.float32([[0, -5, 0], [0, 4, -3]]))
    np.testing.assert_array_equal(sent["w"][1], updates["w"][1])
    np.testing.assert_array_equal(sent["t"], updates["t"])  # at least one entry of each


@pytest.mark.parametrize(("fraction", "size", "kept"), [(0.07, 100, 7), (0.01, 10, 1), (1.0, 5, 5), (0.34, 3, 2)])
def test_the_number_sent(fraction, size, kept):
    sent = send(top_k(fraction), np.float32(RNG.normal(size=(3, size))))
    np.testing.assert_array_equal((np.asarray(sent) != 0).sum(1), [kept] * 3)


def test_equal_entries_do_not_add_up():
    np.testing.assert_array_equal(send(top_k(0.5), np.full((1, 4), -3.0, np.float32)), [[-3, -3, 0, 0]])


def test_the_error_is_what_theory_allows():
    """||x - top_k(x)||^2 <= (1 - k/d) ||x||^2."""
    x = np.float32(RNG.normal(size=(20, 50)))
    left = x - np.asarray(send(top_k(0.2), x))
    assert (np.square(left).sum(1) <= 0.8 * np.square(x).sum(1)).all()


def test_a_broken_update_stays_broken():
    sent = np.asarray(send(top_k(0.25), np.float32([[1, 2, np.nan, 0], [1, 2, 3, np.inf]])))
    assert (~np.isfinite(sent)).any(axis=1).all()


# --- quantisation --------------------------------------------------------------------------------------------


def test_a_constant_stays_as_it_is():
    for value in (3.0, 0.0, -1e30, 1e-38):
        for bits in (1, 8):
            x = np.full((2, 3), value, np.float32)
            np.testing.assert_array_equal(send(quantize(bits), x), x)


def test_levels_are_even_between_the_extremes():
    x = np.float32(RNG.normal(size=(2, 200)))
    sent = np.asarray(send(quantize(2), x))
    for row, given in zip(sent, x, strict=True):
        np.testing.assert_allclose(np.unique(row), np.linspace(given.min(), given.max(), 4), atol=1e-6)
        assert row[given.argmax()] == given.max() and row[given.argmin()] == given.min()
        assert np.abs(row - given).max() <= np.ptp(given) / 3 + 1e-6


@pytest.mark.parametrize("bits", [1, 3])
def test_it_is_right_on_average(bits):
    x, repeats = np.float32(RNG.normal(size=40)), 4000
    keys = jax.random.split(KEY, repeats)
    sent = jax.jit(jax.vmap(lambda key: send(quantize(bits), x[None], key=key)[0]))(keys)
    sent = np.asarray(sent, np.float64)
    width = np.ptp(x) / (2**bits - 1)
    part = (x - x.min()) / width % 1
    deviation = width * np.sqrt(part * (1 - part))
    assert (np.abs(sent.mean(0) - x) <= 5 * deviation / np.sqrt(repeats) + 1e-5).all()
    assert (np.abs(sent.std(0) - deviation) < 0.1 * width).all()


def test_more_bits_err_less():
    x = np.float32(RNG.normal(size=(1, 500)))
    errors = [np.abs(np.asarray(send(quantize(bits), x)) - x).max() for bits in (1, 4, 8, 16)]
    assert errors == sorted(errors, reverse=True) and errors[-1] < 1e-3 < errors[0]


def test_randomness_follows_the_client():
    x = np.float32(RNG.normal(size=(3, 30)))
    one = np.asarray(send(quantize(1), x, ids=[4, 7, 9]))
    order = [2, 0, 1]
    np.testing.assert_array_equal(send(quantize(1), x[order], ids=[9, 4, 7]), one[order])
    alike = np.asarray(send(quantize(1), np.stack([x[0]] * 3), ids=[4, 7, 9]))
    np.testing.assert_array_equal(alike[0], one[0])
    assert (alike[0] != alike[1]).any() and (alike[1] != alike[2]).any()
    assert (np.asarray(send(quantize(1), x, ids=[4, 7, 9], key=jax.random.key(1))) != one).any()


def test_a_broken_row_stays_broken_and_alone():
    x = np.float32([[1, 2, np.nan], [1, 2, 3]])
    sent = np.asarray(send(quantize(4), x))
    assert np.isnan(sent[0]).any() and np.isfinite(sent[1]).all()


# --- both ----------------------------------------------------------------------------------------------------

BOTH = pytest.mark.parametrize("link", [top_k(0.5), quantize(4)], ids=["top_k", "quantize"])


@BOTH
def test_integers_pass_and_types_stay(link):
    updates = {
        "n": np.int32([[5, 6], [7, 8]]),
        "on": np.array([True, False]),
        "h": jnp.asarray([[1.0, -2.0], [4.0, 0.5]], jnp.bfloat16),
        "e": np.zeros((2, 0), np.float32),
    }
    sent = send(link, updates)
    np.testing.assert_array_equal(sent["n"], updates["n"])
    np.testing.assert_array_equal(sent["on"], updates["on"])
    assert {k: v.dtype for k, v in sent.items()} == {k: jnp.asarray(v).dtype for k, v in updates.items()}


@BOTH
@pytest.mark.parametrize("x64", [False, True])
def test_one_trace_seeds_side_by_side_and_double_precision(link, x64):
    with jax.enable_x64(x64):
        x = jnp.asarray(RNG.normal(size=(2, 3, 8)), jnp.result_type(float))
        step = jax.jit(lambda updates, key: send(link, updates, key=key))
        keys = jax.random.split(KEY, 2)
        many = jax.vmap(step)(x, keys)
        for i in range(2):
            one = step(x[i], keys[i])
            assert one.dtype == x.dtype
            np.testing.assert_array_equal(one, many[i])
        assert step._cache_size() == 1


def test_bytes_by_hand():
    params = {"w": jnp.zeros((3, 4)), "b": jnp.zeros(5, jnp.bfloat16), "n": jnp.zeros(2, jnp.int32)}
    assert top_k_bytes(params, 0.25) == 3 * (4 + 4) + 2 * (2 + 4) + 8
    assert quantize_bytes(params, 3) == (5 + 8) + (2 + 4) + 8  # 36 and 15 bits, rounded up to bytes
    assert quantize_bytes({"w": jnp.zeros(())}, 1) == 1 + 8


def test_bytes_are_of_what_is_sent():
    params = {"w": jnp.zeros((7, 9)), "t": jnp.zeros(())}
    sent = send(top_k(0.1), jax.tree.map(lambda p: np.float32(RNG.normal(size=(1, *p.shape))), params))
    entries = sum(int((np.asarray(leaf) != 0).sum()) for leaf in jax.tree.leaves(sent))
    assert top_k_bytes(params, 0.1) == 8 * entries
    shapes = jax.eval_shape(lambda: params)
    assert top_k_bytes(shapes, 0.1) == 8 * entries and quantize_bytes(shapes, 8) == 63 + 8 + 1 + 8


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: top_k(0), "fraction must be"),
        (lambda: top_k(1.5), "fraction must be"),
        (lambda: top_k(np.nan), "fraction must be"),
        (lambda: top_k_bytes({}, 0), "fraction must be"),
        (lambda: quantize(0), "bits must be"),
        (lambda: quantize(17), "bits must be at most 16, got 17"),
        (lambda: quantize(1.5), "bits must be"),
        (lambda: quantize_bytes({}, 0), "bits must be"),
    ],
)
def test_arguments_out_of_range_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_they_chain():
    x = np.float32(RNG.normal(size=(2, 10)))
    sent = np.asarray(send(optax.chain(top_k(0.3), quantize(8)), x))
    np.testing.assert_allclose(sent, send(top_k(0.3), x), atol=np.ptp(x) / 255)
