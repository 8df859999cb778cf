"""A partition drawn once is read back the same, and never mistaken for another."""

from functools import partial

import numpy as np
import pytest

from fedjax_geo.data import (
    ClientParts,
    cached_partition,
    craft_dirichlet,
    dirichlet,
    federate,
    iid,
    load,
    shards,
    within_groups,
)

LABELS = np.random.default_rng(0).integers(0, 5, 400).astype(np.int32)
calls = []


def counted(labels, num_clients, *, seed, alpha=0.5):
    calls.append(num_clients)
    return dirichlet(labels, num_clients, alpha, seed=seed)


@pytest.fixture(autouse=True)
def no_calls():
    calls.clear()


@pytest.mark.parametrize(
    "partition", [iid, partial(shards, shards_per_client=3), partial(craft_dirichlet, alpha=0.3)]
)
def test_the_same_clients_as_without(partition):
    fresh = partition(LABELS, 9, seed=2)
    for _ in range(2):
        again = cached_partition(partition)(LABELS, 9, seed=2)
        assert isinstance(again, ClientParts) == isinstance(fresh, ClientParts)
        uses = zip(fresh, again, strict=True) if isinstance(fresh, ClientParts) else [(fresh, again)]
        for use, same in uses:
            for a, b in zip(use, same, strict=True):
                np.testing.assert_array_equal(a, b)


def test_drawn_once_for_each_key(monkeypatch):
    partition = cached_partition(partial(counted, alpha=0.5))
    for _ in range(2):
        partition(LABELS, 9, seed=2)
    partition(LABELS.astype(np.int64), 9, seed=2)
    assert calls == [9]
    other = LABELS.copy()
    other[7] = (other[7] + 1) % 5
    partition(other, 9, seed=2)
    partition(LABELS, 9, seed=3)
    partition(LABELS, 8, seed=2)
    cached_partition(partial(counted, alpha=0.6))(LABELS, 9, seed=2)
    monkeypatch.setattr("fedjax_geo.__version__", "0.0.test")
    partition(LABELS, 9, seed=2)
    assert len(calls) == 6


def test_a_damaged_entry_is_drawn_anew(tmp_path):
    partition = cached_partition(counted)
    fresh = partition(LABELS, 9, seed=2)
    [file] = (tmp_path / "cache").glob("*/positions.npy")
    file.write_bytes(file.read_bytes()[:-3] + b"abc")
    for _ in range(2):
        for a, b in zip(partition(LABELS, 9, seed=2), fresh, strict=True):
            np.testing.assert_array_equal(a, b)
    assert calls == [9, 9]


def test_in_a_federation():
    source = load("digits_forms")
    plain = partial(craft_dirichlet, alpha=0.5)
    first, again = (federate(source, p, num_clients=6) for p in (plain, cached_partition(plain)))
    np.testing.assert_array_equal(first.train.indices, again.train.indices)
    assert again.provenance == first.provenance
    inside = federate(source, within_groups(cached_partition(iid)), num_clients=28)
    np.testing.assert_array_equal(
        inside.train.indices, federate(source, within_groups(iid), num_clients=28).train.indices
    )


def test_what_could_not_be_recognised():
    for function in (lambda labels, n, *, seed: iid(labels, n, seed=seed), within_groups(iid)):
        with pytest.raises(ValueError, match="must be a function of a module"):
            cached_partition(function)
    with pytest.raises(ValueError, match=r"must be numbers or text, got array\(\[1\.\]\)"):
        cached_partition(partial(counted, alpha=np.ones(1)))
