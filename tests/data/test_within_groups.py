"""A partition inside natural groups: no client has examples of two groups, and nothing is lost."""

from functools import partial

import numpy as np
import pytest

from fedjax_geo.data import (
    ClientParts,
    craft_dirichlet,
    dirichlet,
    federate,
    fedvg_dirichlet,
    iid,
    load,
    server_holdout,
    shards,
    within_groups,
)

RNG = np.random.default_rng(3)
GROUPS = RNG.choice([4, 7, 9], 3000, p=[0.6, 0.3, 0.1])
LABELS = RNG.integers(0, 5, 3000)
SCHEMES = {
    "iid": iid,
    "shards": shards,
    "dirichlet": partial(dirichlet, alpha=0.3),
    "craft_dirichlet": partial(craft_dirichlet, alpha=0.3),
    "fedvg_dirichlet": partial(fedvg_dirichlet, alpha=0.3),
}


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_clients_stay_inside_their_group(scheme):
    partition = within_groups(scheme, GROUPS)
    parts = partition(LABELS, 20, seed=5)
    if isinstance(parts, ClientParts):
        assert scheme is SCHEMES["craft_dirichlet"] and len(parts.train) == len(parts.test) == 20
        parts = [np.concatenate(pair) for pair in zip(parts.train, parts.test, strict=True)]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(3000))
    owners = [set(GROUPS[part].tolist()) for part in parts]
    counts = partition.clients_per_group(20)
    assert owners == [{g} for g, count in zip((4, 7, 9), counts, strict=True) for _ in range(count)]
    again, other = (partition(LABELS, 20, seed=seed) for seed in (5, 6))
    for a, b in zip(again[0] if isinstance(again, ClientParts) else again, parts, strict=True):
        assert set(a.tolist()) <= set(b.tolist())
    first, second = (result[0] if isinstance(result, ClientParts) else result for result in (again, other))
    assert any(len(a) != len(b) or (a != b).any() for a, b in zip(first, second, strict=True))


def test_the_inner_partition_sees_its_group_only():
    seen = []

    def spy(labels, num_clients, *, seed):
        seen.append((labels.tolist(), num_clients, seed))
        return iid(labels, num_clients, seed=seed)

    within_groups(spy, np.array([1, 0, 1, 1, 0, 1]))(np.arange(6), 3, seed=0)
    assert [(labels, count) for labels, count, _ in seen] == [([1, 4], 1), ([0, 2, 3, 5], 2)]
    assert seen[0][2] != seen[1][2]


def test_numbers_of_clients_follow_the_sizes():
    ids = np.repeat([0, 1, 2], [600, 300, 5])
    for n in range(3, 60):
        counts = within_groups(iid, ids).clients_per_group(n)
        assert sum(counts) == n and min(counts) >= 1 and counts[0] >= counts[1] >= counts[2]
    assert within_groups(iid, np.repeat([3, 8], 50)).clients_per_group(20) == [10, 10]


def test_what_does_not_fit():
    with pytest.raises(ValueError, match="num_clients=2 must be at least one for each of the 3 groups"):
        within_groups(iid, GROUPS)(LABELS, 2, seed=0)
    with pytest.raises(ValueError, match="group_ids and labels must be equally many, got 3000 and 7"):
        within_groups(iid, GROUPS)(LABELS[:7], 3, seed=0)
    with pytest.raises(ValueError, match="group_ids is missing"):
        within_groups(iid)(LABELS, 3, seed=0)


def test_in_a_federation_with_a_holdout():
    source = load("digits_forms")
    data = federate(
        source,
        within_groups(partial(dirichlet, alpha=0.3)),
        num_clients=30,
        validation=server_holdout(0.1),
        seed=2,
    )
    assert data.num_clients == 30 and len(data.validation.y) == 180
    assert data.client_names[0] == "form 0, 0" and len(set(data.client_names)) == 30
    for k in range(30):
        rows = [split.indices[k, : split.sizes[k]] for split in (data.train, data.test)]
        forms = set(source.client_ids[np.concatenate(rows)].tolist())
        assert {source.client_names[form] for form in forms} == {data.client_names[k].split(",")[0]}
    assert "within_groups(dirichlet(alpha=0.3))" in data.provenance
    with pytest.raises(ValueError, match="no natural clients to partition within"):
        federate(
            type(source)(**{**vars(source), "client_ids": None, "client_names": ()}),
            within_groups(iid),
            num_clients=3,
        )
