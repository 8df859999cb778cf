"""Natural clients drawn by LEAF's rules."""

from dataclasses import replace

import numpy as np
import pytest

from fedjax_geo.data import load, sample_writers, unseen_writers

DIGITS = load("digits_forms")
SIZES = np.bincount(DIGITS.client_ids)


def origin(part):
    """Each client's number in the whole set, and that its examples are its own."""
    ids = [DIGITS.client_names.index(name) for name in part.client_names]
    for number, old in enumerate(ids):
        mine = DIGITS.images[DIGITS.client_ids == old].reshape(-1, 64)
        theirs = part.images[part.client_ids == number].reshape(-1, 64)
        assert set(map(bytes, theirs)) <= set(map(bytes, mine))
    return ids


@pytest.mark.parametrize("fraction", [0.05, 0.3, 1.0])
def test_whole_writers_until_a_share_is_reached(fraction):
    part = sample_writers(DIGITS, fraction, seed=3)
    ids = origin(part)
    assert len(part) == int(fraction * 1797) and len(set(ids)) == len(ids)
    sizes = np.bincount(part.client_ids)
    np.testing.assert_array_equal(sizes[:-1], SIZES[ids[:-1]])
    assert 0 < sizes[-1] <= SIZES[ids[-1]]
    other = sample_writers(DIGITS, fraction, seed=4)
    assert other.client_names != part.client_names


def test_small_writers_are_left_out_afterwards():
    part = sample_writers(DIGITS, 0.1, seed=3)
    assert np.bincount(part.client_ids)[-1] < 100
    fewer = sample_writers(DIGITS, 0.1, seed=3, min_examples=100)
    assert fewer.client_names == part.client_names[:-1]
    with pytest.raises(ValueError, match=r"fraction=0.01 leaves no client of min_examples=100"):
        sample_writers(DIGITS, 0.01, seed=3, min_examples=100)


def test_unseen_writers_are_disjoint_and_nobody_is_lost():
    seen, unseen = unseen_writers(replace(DIGITS, num_train=1000), 0.25, seed=0)
    assert len(unseen.client_names) == 4 and len(seen) + len(unseen) == 1797
    assert sorted(origin(seen) + origin(unseen)) == list(range(14))
    assert seen.num_train + unseen.num_train == 1000


def test_bad_input():
    for fraction in (0, 1.1, float("nan")):
        with pytest.raises(ValueError, match=f"fraction must be above 0 and at most 1, got {fraction}"):
            sample_writers(DIGITS, fraction, seed=0)
    with pytest.raises(ValueError, match="fraction must be between 0 and 1, of at least 2 natural clients, got 1"):
        unseen_writers(DIGITS, 1, seed=0)
    for choose in (sample_writers, unseen_writers):
        with pytest.raises(ValueError, match="no natural clients to choose from"):
            choose(replace(DIGITS, client_ids=None), 0.5, seed=0)
