import fedvg_setup as setup
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_geo import layers, tree
from fedjax_geo.types import Variables, Weighting
from fedjax_geo.weightings import by_examples, client_update, fedvg, mix, uniform


def normalized(weighting, info, state=()):
    weights, _ = weighting.weigh(info, state)
    return tree.normalize(weights, info.num_examples > 0)


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


def test_weights_are_shares_of_examples_and_not_of_batches():
    close(normalized(by_examples(), setup.info(num_examples=[33, 32])), [33 / 65, 32 / 65])
    close(normalized(by_examples(), setup.info(num_examples=[10, 0, 30])), [0.25, 0, 0.75])


def test_uniform_counts_everyone_who_has_examples():
    close(normalized(uniform(), setup.info(num_examples=[33, 32, 0, 1])), [1 / 3, 1 / 3, 0, 1 / 3])


UPDATES = {"a": jnp.array([[1.0, -2], [3, 0], [0.5, 0.5]]), "b": jnp.array([4.0, 1, 1])}


def mixed(weighting, num_examples):
    """Weights of the clients above, by way of the scores that the mixture asked for."""
    params = jax.tree.map(lambda leaf: leaf[0], UPDATES)
    score = jax.vmap(lambda u: weighting.score(None, Variables(params), u, None, setup.KEY))(UPDATES)
    weights, _ = weighting.weigh(setup.info(score, num_examples), weighting.init(3))
    return weights


FEDVG = np.array([1 / 7, 1 / 4, 1 / 2]) / (1 / 7 + 1 / 4 + 1 / 2)
SIZES = np.array([0.6, 0.3, 0.1])


def test_fedvg_with_fedavg_is_the_mean_of_both():
    found = mixed(mix(fedvg(measure=client_update()), by_examples()), [60, 30, 10])
    close(found, (FEDVG + SIZES) / 2)


@pytest.mark.parametrize("shares", [(1, 3), (0.25, 0.75), (10, 30)])
def test_shares_are_normalised(shares):
    found = mixed(mix(fedvg(measure=client_update()), by_examples(), shares=shares), [60, 30, 10])
    close(found, 0.25 * FEDVG + 0.75 * SIZES)


def test_a_mixture_of_one_is_that_one():
    close(mixed(mix(by_examples()), [60, 30, 10]), SIZES)


def test_weights_by_leaf_and_by_client_mix():
    found = mixed(mix(by_examples(), fedvg(measure=client_update(), layers=layers.leaf)), [60, 30, 10])
    inverse = {"a": np.array([1 / 3, 1 / 3, 1]), "b": np.array([1 / 4, 1, 1])}
    for name, row in inverse.items():
        close(found[name], (SIZES + row / row.sum()) / 2)


def test_clients_without_examples_count_in_no_part():
    found = mixed(mix(fedvg(measure=client_update()), uniform(), by_examples()), [60, 0, 40])
    assert found[1] == 0
    close(jnp.sum(found), 1)


def test_mixtures_nest_and_keep_each_state():
    counting = Weighting(lambda info, state: (jnp.ones_like(info.losses), state + 1), init=lambda n: jnp.zeros(()))
    weighting = mix(mix(by_examples(), counting), counting)
    state = weighting.init(3)
    for _ in range(2):
        weights, state = weighting.weigh(setup.info((((), ()), ()), [60, 30, 10]), state)
    close(weights, 0.25 * SIZES + 0.75 / 3)
    assert jax.tree.map(float, state) == (((), 2.0), 2.0)


def test_a_mixture_needs_what_a_part_needs():
    assert mix(by_examples(), fedvg()).needs_server_data
    assert not mix(by_examples(), uniform()).needs_server_data


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: mix(), "one share for each weighting, got 0 and 0"),
        (lambda: mix(uniform(), shares=[1, 2]), "one share for each weighting, got 2 and 1"),
        (lambda: mix(uniform(), by_examples(), shares=[0, 0]), "sum of shares must be"),
        (lambda: mix(uniform(), by_examples(), shares=[2, -1]), "shares must be"),
    ],
)
def test_impossible_mixtures_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()
