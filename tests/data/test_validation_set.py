"""The server's validation set: three sources, never shared with the clients."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fedjax_geo.data import (
    Source,
    federate,
    fedvg_dirichlet,
    holdout,
    iid,
    load,
    load_federated,
    long_tailed,
    noisy,
    pooled_clients,
    relabelled,
    scale,
    server_holdout,
    subsampled,
    summarize,
    surrogate,
)

DIGITS = load("digits_forms")


def of_clients(data):
    return np.concatenate(
        [
            row[:size]
            for split in (data.train, data.test)
            for row, size in zip(split.indices, split.sizes, strict=True)
        ]
    )


def assert_is_the_rest(data, source):
    """Validation and client examples together are the whole data set, compared by content."""
    own = of_clients(data)
    assert len(own) + len(data.validation.y) == len(source)
    x = np.concatenate([source.images[own], data.validation.x]).reshape(len(source), -1)
    y = np.concatenate([source.labels[own], data.validation.y])
    everything = np.column_stack([x, y])
    expected = np.column_stack([source.images.reshape(len(source), -1), source.labels])
    np.testing.assert_array_equal(everything[np.lexsort(everything.T)], expected[np.lexsort(expected.T)])


def test_holdout_is_stratified_by_class_and_natural_client():
    kept, held = holdout(DIGITS, 0.1, seed=0)
    assert len(held) == 180
    np.testing.assert_array_equal(np.sort(np.concatenate([kept, held])), np.arange(1797))
    strata = DIGITS.client_ids * 10 + DIGITS.labels
    share = np.bincount(strata[held], minlength=140) - 0.1 * np.bincount(strata)
    assert (np.abs(share) < 1).all()


@pytest.mark.parametrize("fraction", [0.0, 1e-4, 0.37, 0.5, 0.999])
def test_holdout_without_natural_clients(fraction):
    source = replace(DIGITS, client_ids=None)
    kept, held = holdout(source, fraction, seed=0)
    assert len(held) == round(fraction * 1797) and len(kept) == 1797 - len(held)
    share = np.bincount(source.labels[held], minlength=10) - fraction * np.bincount(source.labels)
    assert (np.abs(share) < 1).all()


def test_holdout_follows_the_seed():
    first, again, other = (holdout(DIGITS, 0.2, seed=s)[1] for s in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize("partition", [None, iid])
@pytest.mark.parametrize("validation", [server_holdout(0.1), pooled_clients(0.1)])
def test_validation_examples_are_nobody_elses(partition, validation):
    data = federate(DIGITS, partition, num_clients=partition and 30, validation=validation, seed=3)
    assert 0.05 < len(data.validation.y) / 1797 < 0.11
    assert_is_the_rest(data, DIGITS)


def test_no_validation_set():
    for validation in (None, server_holdout(0.0), pooled_clients(0.0)):
        assert load_federated("digits_forms", validation=validation).validation is None


@pytest.mark.parametrize(("alpha", "total"), [(100, 5957), (10, 5955), (1, 5950), (0.1, 5954)])
def test_fedvg_validation_sets(alpha, total):
    source = Source(
        images=np.zeros((60_000, 1, 1, 1), np.uint8),
        labels=np.tile(np.arange(10, dtype=np.int32), 6000),
        class_names=tuple("0123456789"),
        prepare=scale(255),
        num_train=50_000,
        provenance="labels only",
        licence="none",
    )
    data = federate(
        source,
        partial(fedvg_dirichlet, alpha=alpha),
        num_clients=100,
        test_fraction=0.25,
        validation=pooled_clients(0.1),
        seed=42,
    )
    assert len(data.validation.y) == total
    summary = summarize(data)
    assert summary.train + summary.test + total == 60_000
    assert 14_954 <= summary.test <= 14_967


def test_surrogate():
    other = replace(DIGITS, images=16 - DIGITS.images, provenance="the digits, inverted")
    data = load_federated("digits_forms", validation=surrogate(other))
    np.testing.assert_array_equal(data.validation.x, 16 - DIGITS.images)
    np.testing.assert_array_equal(data.validation.y, DIGITS.labels)
    np.testing.assert_array_equal(np.sort(of_clients(data)), np.arange(1797))
    assert data.provenance.endswith("validation: the digits, inverted")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"images": DIGITS.images[:, :7]}, r"image shape: \(7, 8, 1\), the clients': \(8, 8, 1\)"),
        ({"prepare": scale(255)}, "largest pixel value: 255"),
        ({"class_names": tuple("1234567890")}, "classes: "),
    ],
)
def test_surrogate_must_fit(changes, named):
    with pytest.raises(ValueError, match=named):
        load_federated("digits_forms", validation=surrogate(replace(DIGITS, **changes)))


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_bad_fractions(fraction):
    for make in (server_holdout, pooled_clients, partial(holdout, DIGITS, seed=0)):
        with pytest.raises(ValueError, match=rf"fraction must be in \[0, 1\), got {fraction}"):
            make(fraction)


def test_long_tail_as_published():
    """FedVG's class counts for ratio 0.5, from 5,954 examples with 614 and 607 of the first two classes."""
    counts = [614, 607, *[592] * 7, 589]
    labels = np.repeat(np.arange(10, dtype=np.int32), counts)
    source = Source(
        np.zeros((5954, 1, 1, 1), np.uint8), labels, tuple("0123456789"), scale(255), 5954, "made", "none"
    )
    other = replace(source, labels=np.roll(labels, 99))
    data = federate(other, iid, num_clients=2, validation=long_tailed(surrogate(source), 0.5))
    assert np.bincount(data.validation.y).tolist() == [614, 607, 372, 186, 93, 46, 23, 11, 5, 2]
    even = federate(other, iid, num_clients=2, validation=long_tailed(surrogate(source), 1.0))
    assert np.bincount(even.validation.y).tolist() == [297] * 10
    assert data.provenance.endswith("validation: made, 0.5 of it with classes in proportion to 0.5^c")


def test_fewer_and_noisier_examples():
    plain, changed, again = (
        load_federated("digits_forms", validation=validation, seed=1).validation
        for validation in (server_holdout(0.3), *[noisy(subsampled(server_holdout(0.3), 0.3), 0.1)] * 2)
    )
    expected = 0.3 * np.bincount(plain.y)
    assert (np.abs(np.bincount(changed.y) - expected) < 1).all()
    np.testing.assert_array_equal(changed.x, again.x)
    assert changed.x.dtype == np.uint8 and changed.x.max() == 16
    near = np.abs(changed.x[:, None].astype(int) - plain.x[None]).mean((2, 3, 4)).min(1)
    assert (near > 0.2).all() and (near < 1.5).all()  # 0.1 of 16, less what is cut off at black and white


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: long_tailed(pooled_clients(0.1), 0), "ratio must be above 0 and at most 1, got 0"),
        (lambda: long_tailed(pooled_clients(0.1), 0.5, fraction=1.5), "fraction must be above 0 and at most 1"),
        (lambda: subsampled(pooled_clients(0.1), 1.0), "fraction must be at least 0 and below 1"),
        (lambda: noisy(pooled_clients(0.1), -1.0), "std must be a finite number of at least 0"),
    ],
)
def test_bad_changes(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_another_data_set_by_class_name():
    names = tuple("abcdefghij")
    other = replace(DIGITS, class_names=("j", "b", "z", "a", *"lmnopq"), num_train=1000)
    stands_in = relabelled(other, names, {"z": "c", "l": "c"})
    expected = {0: "j", 1: "b", 2: "c", 3: "a", 4: "c"}
    kept = np.flatnonzero(DIGITS.labels < 5)
    np.testing.assert_array_equal(stands_in.images, DIGITS.images[kept])
    assert [names[y] for y in stands_in.labels] == [expected[y] for y in DIGITS.labels[kept]]
    assert stands_in.num_train == (kept < 1000).sum() and stands_in.class_names == names
    data = federate(replace(DIGITS, class_names=names), validation=surrogate(stands_in))
    assert len(data.validation.y) == len(kept)
    with pytest.raises(ValueError, match="renamed has unknown classes x, y; it must map some of j, b"):
        relabelled(other, names, {"x": "a", "b": "y"})
    with pytest.raises(ValueError, match="class_names share none with the data set's j, b"):
        relabelled(other, ("none", "of these"))
