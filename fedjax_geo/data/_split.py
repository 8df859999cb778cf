"""Cutting every client's examples into training, test and validation examples."""

from collections.abc import Sequence

import numpy as np

from fedjax_geo.data._parts import ClientParts
from fedjax_geo.data._source import IntArray


def split_clients(
    parts: Sequence[IntArray], *, test_fraction: float = 0.2, validation_fraction: float = 0.0, seed: int = 0
) -> ClientParts:
    """Cut every client's examples at random into test, validation and training examples.

    Test and validation get the fraction rounded down, but a client of two or more examples has at least one
    test example if there is to be any, and every client trains on at least one.

    Args:
        parts: positions of each client's examples, n arrays.
        test_fraction: of each client's examples.
        validation_fraction: likewise.
        seed: of the shuffles; a client's own does not depend on the other clients.

    Returns:
        Disjoint parts, each ascending, together the given ones.

    Raises:
        ValueError: a negative fraction, or nothing left to train on.

    >>> cut = split_clients([np.arange(10)], test_fraction=0.25, validation_fraction=0.1)
    >>> [len(part[0]) for part in cut]
    [7, 2, 1]
    """
    if test_fraction < 0 or validation_fraction < 0 or not test_fraction + validation_fraction < 1:
        raise ValueError(
            f"test_fraction={test_fraction} and validation_fraction={validation_fraction} "
            "must not be negative and must leave something to train on"
        )
    cuts = []
    for part, stream in zip(parts, np.random.SeedSequence(seed).spawn(len(parts)), strict=True):
        n = len(part)
        test = int(test_fraction * n)
        if test_fraction > 0 and n >= 2:
            test = max(test, 1)
        validation = min(int(validation_fraction * n), max(n - 1 - test, 0))
        shuffled = np.random.default_rng(stream).permutation(part)
        cuts.append([np.sort(piece) for piece in np.split(shuffled, [test, test + validation])])
    tests, validations, trains = zip(*cuts, strict=True)
    return ClientParts(trains, tests, validations)
