"""Inputs are scaled by constants, whatever the batch holds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_geo import data
from fedjax_geo.data import scale


def test_divides_by_the_constant_not_by_the_range():
    x = np.array([[0, 100, 200]], np.uint8).reshape(1, 3, 1)
    prepared = scale(255)(x, train=True, key=jax.random.key(0))
    assert prepared.dtype == jnp.float32
    np.testing.assert_allclose(prepared, x.astype(np.float64) / 255, rtol=1e-6)


def test_normalises_per_channel():
    x = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3)).astype(np.uint8)
    mean, std = [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]
    prepared = jax.jit(lambda x: scale(255, mean, std)(x, train=False, key=None))(x)
    for c in range(3):
        np.testing.assert_allclose(prepared[..., c], (x[..., c] / 255 - mean[c]) / std[c], atol=1e-5)


def test_is_a_value():
    assert scale(255, [0.5], [0.2]) == scale(255.0, (0.5,), (0.2,))
    assert len({scale(16), scale(16), scale(255)}) == 2


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((0,), "divisor"),
        ((float("nan"),), "divisor"),
        ((1, [0.5]), "mean and std"),
        ((1, [0.5], [0.0]), "std"),
        ((1, [0.5, 0.5], [1.0]), "std"),
    ],
)
def test_bad_constants(arguments, named):
    with pytest.raises(ValueError, match=named):
        scale(*arguments)


def test_the_papers_inputs():
    x = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    np.testing.assert_allclose(data.FEDVG_INPUTS(x), x / 255, rtol=1e-6)
    white_paper = (1 - x / 255 - 0.1307) / 0.3081  # ink is dark in their FEMNIST, bright here
    np.testing.assert_allclose(data.CRAFT_FEMNIST_INPUTS(x), white_paper, rtol=1e-5, atol=1e-6)
    colour = np.repeat(x, 3, -1)
    plain = data.CRAFT_CIFAR10_INPUTS(colour)
    mean, std = np.array([0.4914, 0.4822, 0.4465]), np.array([0.2470, 0.2435, 0.2616])
    np.testing.assert_allclose(plain, (colour / 255 - mean) / std, rtol=1e-5, atol=1e-6)
    assert (data.CRAFT_CIFAR10_INPUTS(colour, train=True, key=jax.random.key(0)) != plain).any()
    same = data.CRAFT_CIFAR100_INPUTS(colour, train=True, key=jax.random.key(0))
    np.testing.assert_array_equal(same, data.CRAFT_CIFAR100_INPUTS(colour))
