"""The direction keeps its way and takes the clients' length, group by group."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_geo import layers, tree
from fedjax_geo.aggregators import craft, weighted_mean
from fedjax_geo.transforms import match_lengths

PARAMS = {"fc1": {"kernel": jnp.zeros((3, 4)), "bias": jnp.zeros(4)}, "fc2": {"kernel": jnp.zeros((4, 5))}}
WEIGHTS = jnp.array([0.2, 0.3, 0.5])


def drawn(seed=0):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda p: jnp.asarray(rng.normal(size=(3, *p.shape)), jnp.float32), PARAMS)


def length(value):
    return float(np.sqrt(sum((np.asarray(leaf, np.float64) ** 2).sum() for leaf in jax.tree.leaves(value))))


@pytest.mark.parametrize("inner", [craft, weighted_mean])
@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_each_group_has_the_weighted_mean_length_of_the_updates(inner, factor):
    updates, link = drawn(), inner()
    plain, _ = link.update(updates, link.init(PARAMS), PARAMS, weights=WEIGHTS)
    matched = match_lengths(inner(), factor)
    direction, _ = jax.jit(matched.update)(updates, matched.init(PARAMS), PARAMS, weights=WEIGHTS)
    for group in PARAMS:
        lengths = [length(tree.take(updates[group], i)) for i in range(3)]
        assert length(direction[group]) == pytest.approx(factor * np.dot(WEIGHTS, lengths), rel=1e-5)
        scale = length(direction[group]) / length(plain[group])
        for a, b in zip(jax.tree.leaves(direction[group]), jax.tree.leaves(plain[group]), strict=True):
            np.testing.assert_allclose(a, scale * b, rtol=1e-4, atol=1e-6)


def test_steps_shrink_with_the_updates_and_the_reference_does_not_care():
    """CRAFT's state is its own raw direction, so only the length of the step changes."""
    updates = drawn()
    small = jax.tree.map(lambda u: 1e-3 * u, updates)
    link = match_lengths(craft())
    state = link.init(PARAMS)
    (big_step, big_state), (small_step, small_state) = (
        link.update(u, state, PARAMS, weights=WEIGHTS) for u in (updates, small)
    )
    assert length(small_step) == pytest.approx(1e-3 * length(big_step), rel=1e-4)
    for a, b in zip(jax.tree.leaves(big_state), jax.tree.leaves(small_state), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_the_whole_model_can_be_one_group():
    updates = drawn()
    link = match_lengths(weighted_mean(), groups=layers.model)
    direction, _ = link.update(updates, link.init(PARAMS), PARAMS, weights=WEIGHTS)
    lengths = [length(tree.take(updates, i)) for i in range(3)]
    assert length(direction) == pytest.approx(np.dot(WEIGHTS, lengths), rel=1e-5)


def test_no_updates_no_step_and_a_broken_client_adds_nothing():
    link = match_lengths(craft())
    still = jax.tree.map(jnp.zeros_like, drawn())
    direction, _ = link.update(still, link.init(PARAMS), PARAMS, weights=WEIGHTS)
    assert length(direction) == 0
    broken = jax.tree.map(lambda u: u.at[1].set(jnp.nan), drawn())
    direction, _ = link.update(broken, link.init(PARAMS), PARAMS, weights=WEIGHTS)
    lengths = [length(tree.take(broken["fc2"], i)) for i in (0, 2)]
    assert length(direction["fc2"]) == pytest.approx(np.dot([0.2, 0.5], lengths), rel=1e-5)


def test_a_factor_must_be_positive():
    with pytest.raises(ValueError, match="factor must be a finite number above 0, got 0"):
        match_lengths(craft(), 0.0)
    assert isinstance(match_lengths(craft()), optax.GradientTransformationExtraArgs)
