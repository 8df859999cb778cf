"""What ``private_mean`` costs over a run, by the accountants of the package ``dp-accounting`` (extra ``dp``)."""

import math
from types import ModuleType

from fedjax_geo import _validate


def _accounting() -> ModuleType:
    try:
        import dp_accounting
    except ImportError as error:
        raise ImportError(
            "privacy accounting needs the package dp-accounting: pip install 'fedjax_geo[dp]'"
        ) from error
    return dp_accounting


def _check(noise_multiplier: float, rounds: int, delta: float) -> None:
    _validate.non_negative("noise_multiplier", noise_multiplier)
    _validate.at_least("rounds", rounds, 0)
    if not 0 < delta < 1:
        raise ValueError(f"delta must be above 0 and below 1, got {delta}")


def epsilon(noise_multiplier: float, *, sampling_rate: float, rounds: int, delta: float) -> float:
    """Epsilon at delta, for clients sampled **independently** of one another, by privacy loss distributions.

    This is the number the literature reports and it is nearly tight. It holds for the addition or removal of
    one client, if every client takes part in every round with probability ``sampling_rate``. The round of this
    library draws a cohort of fixed size instead, for which the number is an approximation and no proven bound;
    ``epsilon_fixed_cohort`` gives one.

    Args:
        noise_multiplier: as given to ``private_mean`` or ``private_adaptive_mean``.
        sampling_rate: clients of a cohort over clients of the **population**, ``m / n``.
        rounds: finished rounds.
        delta: commonly below ``1 / n``.

    Returns:
        Epsilon; infinite without noise.

    Raises:
        ValueError: for arguments out of range.
        ImportError: if ``dp-accounting`` is not installed.
    """
    _check(noise_multiplier, rounds, delta)
    if not 0 < sampling_rate <= 1:
        raise ValueError(f"sampling_rate must be above 0 and at most 1, got {sampling_rate}")
    dp = _accounting()
    if not rounds or not noise_multiplier:
        return math.inf if rounds else 0.0
    accountant = dp.pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(dp.PoissonSampledDpEvent(sampling_rate, dp.GaussianDpEvent(noise_multiplier)), rounds)
    return float(accountant.get_epsilon(delta))


def epsilon_fixed_cohort(
    noise_multiplier: float, *, cohort: int, population: int, rounds: int, delta: float
) -> float:
    """A bound on epsilon at delta for cohorts of fixed size without replacement, which is what a round draws.

    It holds for one client **replaced** by another, and so for a sensitivity of twice the clip norm, and goes by
    Rényi divergences (Wang, Balle, Kasiviswanathan, 2019, arXiv 1808.00087, theorem 27). It is larger than
    ``epsilon``, by the stronger promise and by the looser bound.

    Args:
        noise_multiplier: as given to ``private_mean`` or ``private_adaptive_mean``.
        cohort: clients of a round, m.
        population: all clients, n.
        rounds: finished rounds.
        delta: commonly below ``1 / n``.

    Returns:
        Epsilon; infinite without noise.

    Raises:
        ValueError: for arguments out of range.
        ImportError: if ``dp-accounting`` is not installed.
    """
    _check(noise_multiplier, rounds, delta)
    _validate.at_least("cohort", cohort, 1)
    _validate.at_least("population", population, cohort)
    dp = _accounting()
    if not rounds or not noise_multiplier:
        return math.inf if rounds else 0.0
    accountant = dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    one_round = dp.GaussianDpEvent(noise_multiplier / 2)  # standard deviation over sensitivity 2C
    accountant.compose(dp.SampledWithoutReplacementDpEvent(population, cohort, one_round), rounds)
    return float(accountant.get_epsilon(delta))
