import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_geo.aggregators import weighted_mean
from fedjax_geo.transforms import adagrad_moment, adam_moment, per_client, scale_by_fedopt, yogi_moment

DELTA = (0.5, -2.25, -0.5)  # a constant change of the clients' mean, model minus server


def trajectory(link, rounds, dtype=np.float32):
    """Server parameters of three numbers from zero, with server rate .1."""
    server = optax.chain(weighted_mean(), link, optax.sgd(0.1))
    theta = jnp.zeros(3, dtype)
    state, found = server.init(theta), []
    for _ in range(rounds):
        updates = -jnp.array([DELTA], dtype)
        change, state = server.update(updates, state, theta, weights=jnp.ones(1, dtype))
        theta = optax.apply_updates(theta, change)
        found.append(np.asarray(theta))
    return np.stack(found)


ADAM = [(0.297417436, -0.311844921, -0.297417436), (0.704181034, -0.732621334, -0.704181034)]
YOGI = [ADAM[0], (0.704083684, -0.732517162, -0.704083684)]
ADAGRAD = [(0.009980040, -0.009995558, -0.009980040), (0.023396096, -0.023426365, -0.023396096)]


@pytest.mark.parametrize(
    ("moment", "wanted"),
    [(adam_moment(0.999), ADAM), (yogi_moment(0.999), YOGI), (adagrad_moment(), ADAGRAD)],
    ids=["adam", "yogi", "adagrad"],
)
def test_fedopt_takes_the_published_steps(moment, wanted):
    with jax.enable_x64(True):
        link = scale_by_fedopt(moment, b1=0.9, tau=1e-3)
        np.testing.assert_allclose(trajectory(link, 2, np.float64), wanted, rtol=0, atol=1e-9)
    np.testing.assert_allclose(trajectory(link, 2), wanted, rtol=0, atol=1e-5)


def test_first_moment_gathers_the_pseudo_gradient():
    """Two rounds of a change of 1 with b1 = .9 give .1 and .19, without bias correction."""
    link = scale_by_fedopt(adam_moment(), b1=0.9)
    state, found = link.init(jnp.zeros(1)), []
    for _ in range(2):
        _, state = link.update(jnp.ones(1), state)
        found.append(float(state.first[0]))
    np.testing.assert_allclose(found, [0.1, 0.19], rtol=1e-6)


def test_second_moment_starts_where_it_is_told_and_never_turns_negative():
    link = scale_by_fedopt(yogi_moment(), initial=1e-6)
    state = link.init({"a": jnp.zeros((2, 3))})
    np.testing.assert_allclose(state.second["a"], np.full((2, 3), 1e-6))
    for scale in (5.0, 0.1, 0.0, 3.0):
        _, state = link.update({"a": jnp.full((2, 3), scale)}, state)
        assert (state.second["a"] >= 0).all()


@pytest.mark.parametrize("moment", [adam_moment(), yogi_moment(), adagrad_moment()])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_fedopt_traces_once(moment, dtype):
    link, traces = scale_by_fedopt(moment, initial=1e-6), []

    @jax.jit
    def update(direction, state):
        traces.append(None)
        return link.update(direction, state)

    direction = jnp.ones(3, dtype)
    state = link.init(direction)
    for _ in range(3):
        step, state = update(direction, state)
    assert {leaf.dtype for leaf in jax.tree.leaves((step, state))} == {jnp.dtype(dtype)}
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: scale_by_fedopt(adagrad_moment(), b1=1.0), "b1 must be"),
        (lambda: scale_by_fedopt(adagrad_moment(), tau=0.0), "tau must be"),
        (lambda: scale_by_fedopt(adagrad_moment(), initial=-1.0), "initial must be"),
        (lambda: adam_moment(1.0), "b2 must be"),
        (lambda: yogi_moment(float("nan")), "b2 must be"),
    ],
)
def test_arguments_out_of_range_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_per_client_equals_the_link_on_each_client():
    rng = np.random.default_rng(0)
    updates = {"w": jnp.asarray(rng.normal(size=(4, 2, 3)), jnp.float32), "t": jnp.asarray([1.0, 0.1, 3.0, 0.0])}
    link = optax.clip_by_global_norm(1.0)
    mapped = per_client(link)
    params = jax.tree.map(lambda leaf: leaf[0], updates)
    found, _ = mapped.update(updates, mapped.init(params), params, weights=jnp.ones(4))
    for i in range(4):
        one = jax.tree.map(lambda leaf: leaf[i], updates)
        wanted, _ = link.update(one, link.init(params))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a[i], b, rtol=1e-6), found, wanted)
    norms = np.sqrt(np.square(found["w"]).sum((1, 2)) + np.square(found["t"]))
    assert (norms <= 1 + 1e-6).all()
    assert norms[0] > 0.9


def test_per_client_clips_the_update_and_not_the_model():
    """Parameters of length 5 and an update of length .1 under a bound of 1: nothing happens."""
    mapped = per_client(optax.clip_by_global_norm(1.0))
    params = jnp.array([3.0, 4.0])
    found, _ = mapped.update(jnp.array([[0.1, 0.0]]), mapped.init(params), params)
    np.testing.assert_array_equal(found, np.float32([[0.1, 0.0]]))


def test_per_client_hands_parameters_to_the_link():
    mapped = per_client(optax.add_decayed_weights(0.5))
    found, _ = mapped.update(jnp.zeros((3, 2)), mapped.init(jnp.ones(2)), jnp.array([2.0, 4.0]))
    np.testing.assert_array_equal(found, [[1.0, 2.0]] * 3)


@pytest.mark.parametrize("link", [optax.adam(0.1), optax.trace(0.9), optax.add_noise(0.1, 0.5, 0)])
def test_per_client_refuses_links_with_state(link):
    with pytest.raises(ValueError, match="per_client needs a link without state"):
        per_client(link).init(jnp.zeros(2))
