"""Epsilon, against the closed form of the Gaussian mechanism where nothing is sampled."""

import math
import sys

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from fedjax_geo.transforms import epsilon, epsilon_fixed_cohort

accounting = pytest.importorskip("dp_accounting")


def gaussian(sigma, delta):
    """Balle, Wang, 2018, arXiv 1805.06530, theorem 8: sensitivity 1."""

    def excess(eps):
        a, b = 1 / (2 * sigma), eps * sigma
        return norm.cdf(a - b) - np.exp(eps + norm.logcdf(-a - b)) - delta

    return brentq(excess, 0, 500)


@pytest.mark.parametrize(("sigma", "rounds"), [(1.0, 1), (4.0, 10), (20.0, 500)])
def test_everyone_in_every_round(sigma, rounds):
    """Composed Gaussians are one of sigma / sqrt(rounds); replacing a client has twice the sensitivity."""
    found = epsilon(sigma, sampling_rate=1.0, rounds=rounds, delta=1e-5)
    assert found == pytest.approx(gaussian(sigma / math.sqrt(rounds), 1e-5), rel=1e-3)
    bound = epsilon_fixed_cohort(sigma, cohort=50, population=50, rounds=rounds, delta=1e-5)
    exact = gaussian(sigma / 2 / math.sqrt(rounds), 1e-5)
    assert exact < bound < 1.15 * exact


def test_sampling_is_of_the_population():
    """10 of 1000 is a rate of .01, and ten times less private than it would be without sampling."""
    sampled = epsilon(1.0, sampling_rate=10 / 1000, rounds=100, delta=1e-5)
    assert sampled == pytest.approx(0.71, abs=0.3)
    assert sampled < epsilon(1.0, sampling_rate=1.0, rounds=100, delta=1e-5) / 10
    fixed = {
        n: epsilon_fixed_cohort(2.0, cohort=10, population=n, rounds=100, delta=1e-5) for n in (10, 100, 1000)
    }
    assert fixed[1000] < fixed[100] < fixed[10]


def test_one_sampled_round_against_the_mixture():
    """delta(eps) of one Poisson-sampled round, by integrating the two densities."""
    sigma, q, delta = 1.0, 0.2, 1e-3
    eps = epsilon(sigma, sampling_rate=q, rounds=1, delta=delta)
    x = np.linspace(-15, 15, 400_001)
    without = norm.pdf(x, 0, sigma)
    with_it = (1 - q) * without + q * norm.pdf(x, 1, sigma)
    spent = max(
        np.trapezoid(np.maximum(p - np.exp(eps) * r, 0), x) for p, r in ((without, with_it), (with_it, without))
    )
    assert spent == pytest.approx(delta, rel=0.01)


def test_more_noise_fewer_rounds_larger_delta_cost_less():
    def cost(sigma=1.0, rounds=50, delta=1e-5):
        return epsilon(sigma, sampling_rate=0.05, rounds=rounds, delta=delta)

    assert cost(2.0) < cost() < cost(rounds=100)
    assert cost(delta=1e-3) < cost()


def test_no_noise_and_no_rounds():
    fixed = {"cohort": 10, "population": 100}
    assert epsilon(0.0, sampling_rate=0.1, rounds=1, delta=1e-5) == math.inf
    assert epsilon(1.0, sampling_rate=0.1, rounds=0, delta=1e-5) == 0.0
    assert epsilon_fixed_cohort(0.0, **fixed, rounds=1, delta=1e-5) == math.inf
    assert epsilon_fixed_cohort(1.0, **fixed, rounds=0, delta=1e-5) == 0.0


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ImportError, match=r"fedjax_geo\[dp\]"):
        epsilon(1.0, sampling_rate=0.1, rounds=1, delta=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampling_rate": 10}, "sampling_rate must be"),
        ({"sampling_rate": 0}, "sampling_rate must be"),
        ({"rounds": -1}, "rounds must be"),
        ({"delta": 0}, "delta must be"),
        ({"noise_multiplier": -1}, "noise_multiplier must be"),
    ],
)
def test_arguments_out_of_range_are_named(change, message):
    given = {"noise_multiplier": 1.0, "sampling_rate": 0.1, "rounds": 1, "delta": 1e-5} | change
    with pytest.raises(ValueError, match=message):
        epsilon(**given)


def test_a_cohort_is_part_of_the_population():
    with pytest.raises(ValueError, match="population must be a whole number of at least 10, got 5"):
        epsilon_fixed_cohort(1.0, cohort=10, population=5, rounds=1, delta=1e-5)
