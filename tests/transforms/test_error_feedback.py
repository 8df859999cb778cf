"""What compression leaves out comes with the same client's next update."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toys

from fedjax_geo.aggregators import weighted_mean
from fedjax_geo.clients import local_sgd
from fedjax_geo.round import make_round
from fedjax_geo.transforms import drop_nonfinite, error_feedback, quantize, top_k
from fedjax_geo.types import Method, Model, Task, Variables
from fedjax_geo.weightings import uniform

KEY = jax.random.key(0)


def send(link, state, updates, ids, num_examples=None, key=KEY):
    num_examples = jnp.ones(len(ids), jnp.int32) if num_examples is None else jnp.asarray(num_examples)
    updates = jax.tree.map(jnp.asarray, updates)
    return link.update(updates, state, client_ids=jnp.asarray(ids), num_examples=num_examples, key=key)


def test_two_rounds_by_hand():
    link = error_feedback(top_k(1 / 3), num_clients=4)
    state = link.init(jnp.zeros(3))
    sent, state = send(link, state, np.float32([[1, 3, 2]]), [2])
    np.testing.assert_array_equal(sent, [[0, 3, 0]])
    np.testing.assert_array_equal(state.memory, [[0] * 3, [0] * 3, [1, 0, 2], [0] * 3])
    sent, state = send(link, state, np.float32([[1, 3, 2]]), [2])
    np.testing.assert_array_equal(sent, [[0, 0, 4]])
    np.testing.assert_array_equal(state.memory[2], [2, 3, 0])


@pytest.mark.parametrize("inner", [top_k(0.2), quantize(1), optax.chain(top_k(0.5), quantize(3))])
@pytest.mark.parametrize(("x64", "tolerance"), [(False, 1e-5), (True, 1e-13)])
def test_nothing_is_lost(inner, x64, tolerance):
    """What each client sent and what it remembers is what it learned, whoever was sampled when."""
    rng, n = np.random.default_rng(0), 5
    with jax.enable_x64(x64):
        link = error_feedback(inner, n)
        step = jax.jit(lambda state, updates, ids, key: send(link, state, updates, ids, key=key))
        state = link.init({"w": jnp.zeros((2, 5)), "t": jnp.zeros(())})
        learned = sent_so_far = jax.tree.map(np.asarray, state.memory)
        for t in range(12):
            ids = rng.permutation(n)[:2]
            updates = jax.tree.map(lambda leaf: rng.normal(size=(2, *leaf.shape[1:])).astype(leaf.dtype), learned)
            sent, state = step(state, updates, ids, jax.random.key(t))
            place = np.eye(n)[ids].T
            learned = jax.tree.map(lambda a, u: a + np.tensordot(place, u, 1), learned, updates)
            sent_so_far = jax.tree.map(lambda a, u: a + np.tensordot(place, u, 1), sent_so_far, sent)
        assert step._cache_size() == 1
        jax.tree.map(
            lambda a, b, c: np.testing.assert_allclose(a + b, c, atol=tolerance),
            sent_so_far,
            state.memory,
            learned,
        )


def test_sending_everything_remembers_nothing():
    link, x = error_feedback(top_k(1.0), 3), np.float32([[1, -2], [3, 4]])
    sent, state = send(link, link.init(jnp.zeros(2)), x, [2, 0])
    np.testing.assert_array_equal(sent, x)
    np.testing.assert_array_equal(state.memory, np.zeros((3, 2)))


def test_the_silent_and_the_broken_keep_their_memory():
    link = error_feedback(top_k(0.5), 3)
    _, state = send(link, link.init(jnp.zeros(2)), np.float32([[2, 1], [2, 1], [2, 1]]), [0, 1, 2])
    updates = np.float32([[0, 0], [np.nan, 5], [0, 5]])
    sent, after = send(link, state, updates, [0, 1, 2], num_examples=[0, 1, 1])
    np.testing.assert_array_equal(sent, [[0, 0], [np.nan, 5], [0, 6]])
    np.testing.assert_array_equal(after.memory, [[0, 1], [0, 1], [0, 0]])


def test_integers_pass():
    link = error_feedback(top_k(0.5), 2)
    updates = {"w": np.float32([[2, 1]]), "n": np.int32([[3, 4]])}
    sent, state = send(link, link.init({"w": jnp.zeros(2), "n": jnp.zeros(2, jnp.int32)}), updates, [1])
    np.testing.assert_array_equal(sent["n"], updates["n"])
    np.testing.assert_array_equal(state.memory["n"], np.zeros((2, 2)))


def test_order_of_the_cohort_does_not_matter():
    rng = np.random.default_rng(0)
    link, x, order = error_feedback(quantize(2), 6), np.float32(rng.normal(size=(4, 5))), [3, 1, 0, 2]
    ids = np.array([5, 2, 0, 3])
    start = link.init(jnp.zeros(5))
    sent, state = send(link, start, x, ids)
    other, same = send(link, start, x[order], ids[order])
    np.testing.assert_array_equal(np.asarray(sent)[order], other)
    np.testing.assert_array_equal(state.memory, same.memory)


# --- whole rounds --------------------------------------------------------------------------------------------


def linear(width):
    """LIN in several dimensions: the loss is ``x . w``."""

    def apply(variables, x, *, train, key, mask):
        return (x @ variables.params["w"])[:, None], variables.stats

    return Model(lambda key, x: Variables({"w": jnp.zeros(width)}), apply)


def test_rounds_follow_the_client_and_not_its_place():
    """Two of four clients a round, one entry of three sent, against a plain loop by the clients' ids."""
    lr = 0.5
    slopes = np.float32([[4, 1, 2], [-1, 3, 2.5], [0.5, -2, 1], [1, 1, -5]])
    remember = optax.GradientTransformationExtraArgs(
        lambda params: jnp.zeros(2, jnp.int32), lambda u, s, p=None, *, client_ids, **_: (u, client_ids)
    )
    server = optax.chain(
        remember, error_feedback(top_k(1 / 3), 4), drop_nonfinite(weighted_mean()), optax.sgd(1.0)
    )
    data = toys.federation([row[None] for row in slopes])
    task = Task(linear(3), data.prepare, toys.loss_is_output)
    process = make_round(Method(local_sgd(optax.sgd(lr)), uniform(), server), task, cohort=2, diagnose=None)
    data, step = jax.tree.map(jnp.asarray, data), jax.jit(process.step)
    state = process.init(KEY, data)
    w, memory, met = np.zeros(3), np.zeros((4, 3)), set()
    for _ in range(8):
        state, _ = step(state, KEY, data)
        for i in np.asarray(state.server[0]):
            whole = lr * slopes[i] + memory[i]
            sent = np.where(np.arange(3) == np.abs(whole).argmax(), whole, 0)
            memory[i], w = whole - sent, w - sent / 2
            met.add(int(i))
        np.testing.assert_allclose(state.server[1].memory["w"], memory, atol=1e-5)
        np.testing.assert_allclose(state.variables.params["w"], w, atol=1e-5)
    assert step._cache_size() == 1 and met == {0, 1, 2, 3}


def test_the_population_is_checked():
    data = toys.federation([np.ones((1, 1))] * 3)
    server = optax.chain(error_feedback(top_k(1.0), 2), weighted_mean(), optax.sgd(1.0))
    with pytest.raises(ValueError, match="built for 2 clients, and the round has 3"):
        toys.run(Method(local_sgd(optax.sgd(0.1)), uniform(), server), toys.lin, data)
    with pytest.raises(ValueError, match="num_clients must be"):
        error_feedback(top_k(0.1), 0)
