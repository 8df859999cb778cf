"""From a data set to a federation: who holds what, and what the server gets."""

from functools import partial

import jax
import numpy as np
import pytest

from fedjax_geo.data import (
    ClientParts,
    Source,
    assemble,
    craft_dirichlet,
    crop_flip,
    dirichlet,
    federate,
    iid,
    in_order,
    load,
    load_federated,
    pooled_clients,
    scale,
    server_holdout,
    split_clients,
)


def made_source(labels, client_ids=None):
    """Tiny pictures that show their own position, so that an example can be told by its pixels."""
    labels = np.asarray(labels, np.int32)
    position = np.arange(len(labels))
    return Source(
        images=np.stack([position // 256, position % 256], -1).astype(np.uint8).reshape(-1, 1, 1, 2),
        labels=labels,
        class_names=tuple("abc"),
        prepare=scale(255),
        num_train=len(labels),
        provenance="made for a test",
        licence="none",
        client_ids=client_ids,
        client_names=("left", "middle", "right"),
    )


def positions(examples):
    return examples.x[:, 0, 0, 0].astype(int) * 256 + examples.x[:, 0, 0, 1]


def rows(split):
    return [row[:size] for row, size in zip(split.indices, split.sizes, strict=True)]


def test_shapes_types_and_padding():
    data = federate(made_source(np.arange(90) % 3), partial(dirichlet, alpha=0.3), num_clients=8, seed=2)
    assert data.num_clients == 8 and data.num_classes == 3
    assert data.examples.x.dtype == np.uint8 and data.examples.y.dtype == np.int32
    for split in (data.train, data.test):
        assert split.indices.dtype == split.sizes.dtype == np.int32
        assert split.indices.shape == (8, split.sizes.max())
        for row, size in zip(split.indices, split.sizes, strict=True):
            assert (row[size:] == 0).all()
    np.testing.assert_array_equal(np.sort(np.concatenate(rows(data.train) + rows(data.test))), np.arange(90))


def test_it_is_a_pytree_with_a_hashable_structure():
    data = load_federated("digits_forms")
    leaves, structure = jax.tree.flatten(data)
    assert len(leaves) == 6
    assert hash(structure) == hash(jax.tree.structure(load_federated("digits_forms")))
    sizes = jax.jit(lambda data: data.train.sizes + data.test.sizes)(data)
    np.testing.assert_array_equal(sizes, np.bincount(load("digits_forms").client_ids))


def test_natural_clients():
    ids = np.array([2, 0, 2, 2, 0, 2, 0], np.int32)
    data = federate(made_source(np.arange(7) % 3, ids))
    assert data.client_names == ("left", "right")
    for name, *parts in zip((0, 2), rows(data.train), rows(data.test), strict=True):
        assert set(ids[np.concatenate(parts)]) == {name}
    digits = load_federated("digits_forms")
    assert digits.client_names[13] == "form 13"
    assert (digits.test.sizes == np.bincount(load("digits_forms").client_ids) // 5).all()


def test_the_seed_decides():
    first, again, other = (load_federated("digits_forms", num_clients=9, partition=iid, seed=s) for s in (1, 1, 2))
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (first.train.indices != other.train.indices).any()


def test_cut_of_small_clients():
    cut = split_clients([np.arange(n) for n in range(12)], test_fraction=0.3, validation_fraction=0.2)
    sizes = [tuple(map(len, use)) for use in cut]
    assert sizes[1] == (0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3)
    assert sizes[2] == (0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2)
    assert min(sizes[0][1:]) == 1
    for n, parts in enumerate(zip(*cut, strict=True)):
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    assert max(map(len, split_clients([np.arange(9)], test_fraction=0.0).test)) == 0


def test_a_clients_cut_does_not_depend_on_the_others():
    parts = [np.arange(10), np.arange(10, 30)]
    longer = split_clients([*parts, np.arange(30, 50)], seed=5)
    other = split_clients([np.arange(100, 103), parts[1]], seed=5)
    np.testing.assert_array_equal(longer.test[1], other.test[1])


@pytest.mark.parametrize(("test", "validation"), [(-0.1, 0.0), (0.5, 0.5), (0.2, -0.1), (float("nan"), 0.0)])
def test_bad_fractions(test, validation):
    with pytest.raises(ValueError, match=f"test_fraction={test} and validation_fraction={validation}"):
        split_clients([np.arange(5)], test_fraction=test, validation_fraction=validation)


def test_explicit_lists_with_a_client_of_one_and_a_client_of_none():
    empty = np.zeros(0, int)
    parts = ClientParts([np.array([4]), empty], [empty, empty], [np.array([2, 0])])
    data = assemble(made_source([0, 1, 2, 0, 1]), parts)
    assert data.train.sizes.tolist() == [1, 0] and data.test.sizes.tolist() == [0, 0]
    assert data.train.indices.tolist() == [[4], [0]] and data.test.indices.tolist() == [[0], [0]]
    assert positions(data.validation).tolist() == [2, 0] and data.validation.y.tolist() == [2, 0]
    assert data.client_names == ("client 0", "client 1")


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ([[0], [1]], [[2], [0]], "in two parts"),
        ([[0], [1]], [[2], [5]], r"\[0, 5\), got 0 to 5"),
        ([[0], [1]], [[2], [-1]], "got -1 to 2"),
        ([[0], [1]], [[2]], "got 2, 1 and 2"),
        ([], [], "got 0, 0 and 0"),
    ],
)
def test_bad_explicit_lists(train, test, message):
    parts = ClientParts(list(map(np.array, train)), list(map(np.array, test)))
    with pytest.raises(ValueError, match=message):
        assemble(made_source([0, 1, 2, 0, 1]), parts)


def test_a_partition_may_bring_its_own_test_examples():
    source = made_source(np.arange(600) % 3)
    partition = partial(craft_dirichlet, alpha=0.5)
    expected = partition(source.labels, 6, seed=7)
    data = federate(source, partition, num_clients=6, seed=7)
    for ours, theirs in ((data.train, expected.train), (data.test, expected.test)):
        for a, b in zip(rows(ours), theirs, strict=True):
            np.testing.assert_array_equal(a, b)
    for choice in ({"test_fraction": 0.1}, {"validation": pooled_clients(0.1)}):
        with pytest.raises(ValueError, match="brings its own test examples"):
            federate(source, partition, num_clients=6, **choice)

    held = federate(source, partition, num_clients=6, validation=server_holdout(0.2), seed=7)
    everything = [positions(held.validation), *rows(held.train), *rows(held.test)]
    np.testing.assert_array_equal(np.sort(np.concatenate(everything)), np.arange(600))


def test_what_does_not_fit_together():
    source = made_source(np.arange(30) % 3)
    with pytest.raises(ValueError, match="no natural clients"):
        federate(source)
    with pytest.raises(ValueError, match="num_clients is needed"):
        federate(source, iid)
    with pytest.raises(ValueError, match="num_clients=20, but there are 14 natural clients"):
        load_federated("digits_forms", num_clients=20)


def test_provenance_says_how_it_was_cut():
    data = federate(
        made_source(np.arange(90) % 3),
        partial(dirichlet, alpha=0.3),
        num_clients=8,
        validation=pooled_clients(0.1),
        seed=2,
    )
    assert data.provenance == (
        "made for a test; dirichlet(alpha=0.3), 8 clients, 0.2 of each for testing, seed 2; "
        "validation: 0.1 of each client's examples"
    )
    assert "natural clients" in load_federated("digits_forms").provenance


def test_inputs_may_be_chosen():
    plain = load_federated("digits_forms")
    own = in_order(crop_flip(1, flip=False), scale(16))
    data = load_federated("digits_forms", prepare=own)
    assert plain.prepare == scale(16) and data.prepare == own
    assert jax.tree.structure(data) != jax.tree.structure(plain)
    assert data.provenance == f"{plain.provenance}; inputs: {own}"
    np.testing.assert_array_equal(data.examples.x, plain.examples.x)
    for prepare in (255, ["not", "hashable"]):
        with pytest.raises(ValueError, match="prepare must be a hashable function"):
            load_federated("digits_forms", prepare=prepare)
