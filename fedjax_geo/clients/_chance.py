"""What happens to a client by chance, drawn from its key of the round.

Each draw has a number of its own, above all step numbers, so that it touches no other randomness:
a client that is spared trains as if the wrapper were not there.
"""

import jax

from fedjax_geo.types import Array, Key

STRAGGLES, HOW_MUCH, DROPS_OUT = 2**32 - 1, 2**32 - 2, 2**32 - 3


def valid_probability(name: str, value: float) -> float:
    """A number from 0 to 1.

    Raises:
        ValueError: otherwise.
    """
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be at least 0 and at most 1, got {value}")
    return value


def happens(key: Key, mishap: int, probability: float) -> Array:
    """Whether it happens this time, bool scalar."""
    return jax.random.bernoulli(jax.random.fold_in(key, mishap), probability)
