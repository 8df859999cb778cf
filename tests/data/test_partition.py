"""What every partition promises, and what each adds to it."""

import time
from functools import partial

import numpy as np
import pytest
from scipy.optimize import linprog

from fedjax_geo.data import (
    ClientParts,
    by_group,
    classes_per_client,
    craft_dirichlet,
    dirichlet,
    fedvg_dirichlet,
    iid,
    quantity_skew,
    shards,
)
from fedjax_geo.data._lift import lift

LABELS = np.random.default_rng(1).permutation(
    np.repeat(np.arange(10), [700, 650, 600, 550, 500, 500, 450, 400, 350, 301])
)
SCHEMES = {
    "iid": iid,
    "shards": shards,
    "dirichlet": partial(dirichlet, alpha=0.3),
    "craft_dirichlet": partial(craft_dirichlet, alpha=0.3),
    "craft_balanced": partial(craft_dirichlet, alpha=0.3, balanced=True),
    "fedvg_dirichlet": partial(fedvg_dirichlet, alpha=0.3),
    "classes_per_client": classes_per_client,
    "quantity_skew": partial(quantity_skew, alpha=0.3),
}
SKEWED = {
    "dirichlet": dirichlet,
    "craft_dirichlet": craft_dirichlet,
    "fedvg_dirichlet": fedvg_dirichlet,
    "quantity_skew": quantity_skew,
}
every_scheme = pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
every_skewed = pytest.mark.parametrize("scheme", SKEWED.values(), ids=SKEWED)


def whole(parts):
    """Each client's examples, training and test together."""
    if isinstance(parts, ClientParts):
        return [np.concatenate(pair) for pair in zip(parts.train, parts.test, strict=True)]
    return parts


def assert_covers(parts, num_examples):
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(num_examples))


@every_scheme
def test_every_example_goes_to_exactly_one_client(scheme):
    before = LABELS.copy()
    parts = whole(scheme(LABELS, 17, seed=0))
    assert len(parts) == 17
    assert all(np.issubdtype(part.dtype, np.integer) for part in parts)
    assert_covers(parts, len(LABELS))
    np.testing.assert_array_equal(LABELS, before)


@every_scheme
def test_the_seed_decides_and_nothing_else(scheme):
    state = np.random.get_state()
    first, other = whole(scheme(LABELS, 17, seed=3)), whole(scheme(LABELS, 17, seed=4))
    assert np.random.get_state()[2] == state[2]
    np.testing.assert_array_equal(np.random.get_state()[1], state[1])
    np.random.seed(99)
    again = whole(scheme(LABELS, 17, seed=3))
    np.random.set_state(state)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(len(a) != len(b) or (a != b).any() for a, b in zip(first, other, strict=True))


@every_scheme
def test_label_mixes_do_not_depend_on_the_order_of_rows(scheme):
    other = np.random.default_rng(5).permutation(LABELS)
    for part, same in zip(whole(scheme(LABELS, 17, seed=3)), whole(scheme(other, 17, seed=3)), strict=True):
        np.testing.assert_array_equal(np.bincount(LABELS[part]), np.bincount(other[same]))


@every_scheme
def test_impossible_numbers_of_clients(scheme):
    for num_clients in (0, -1):
        with pytest.raises(ValueError, match=f"num_clients must be at least 1, got {num_clients}"):
            scheme(LABELS, num_clients, seed=0)
    with pytest.raises(ValueError, match="num_clients=7 must not exceed the 3 examples"):
        scheme(np.array([0, 1, 1]), 7, seed=0)


@every_skewed
@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_alpha(scheme, alpha):
    with pytest.raises(ValueError, match=f"alpha must be positive and finite, got {alpha}"):
        scheme(LABELS, 5, alpha, seed=0)


@every_skewed
def test_infeasible_minimum_is_refused_at_once(scheme):
    with pytest.raises(
        ValueError, match="min_examples=2 is impossible for 30 clients with 50 examples; use at most 1"
    ):
        scheme(np.zeros(50, int), 30, 1.0, seed=0, min_examples=2)


@every_skewed
def test_huge_alpha_is_iid(scheme):
    parts = whole(scheme(LABELS, 20, 1e6, seed=0))
    counts = np.array([np.bincount(LABELS[part], minlength=10) for part in parts])
    expected = np.bincount(LABELS) / 20
    assert (np.abs(counts - expected) <= 3 * np.sqrt(expected)).all()


@pytest.mark.parametrize("scheme", [dirichlet, craft_dirichlet])
@pytest.mark.parametrize("alpha", [1e-4, 1e-8])
def test_tiny_alpha_gives_one_class_to_one_client(scheme, alpha):
    parts = whole(scheme(LABELS, 5, alpha, seed=0, min_examples=1))
    assert_covers(parts, len(LABELS))
    counts = np.array([np.bincount(LABELS[part], minlength=10) for part in parts])
    assert (counts.max(0) / counts.sum(0)).mean() > 0.95


def test_the_legacy_generator_refuses_what_it_cannot_draw():
    with pytest.raises(ValueError, match=r"alpha=0\.0001 is too small for this generator"):
        fedvg_dirichlet(LABELS, 5, 1e-4, seed=0, min_examples=0)


@pytest.mark.parametrize(
    ("scheme", "num_clients"),
    [
        (partial(dirichlet, alpha=0.1), 1000),
        (partial(dirichlet, alpha=0.05), 100),
        (partial(quantity_skew, alpha=0.1), 1000),
        (partial(classes_per_client, classes=3), 1000),
    ],
)
@pytest.mark.parametrize("min_examples", [10, 50])
def test_many_skewed_clients_end_quickly(scheme, num_clients, min_examples):
    labels = np.repeat(np.arange(10), 5000)
    start = time.process_time()
    parts = scheme(labels, num_clients, seed=0, min_examples=min_examples)
    assert time.process_time() - start < 5
    assert min(map(len, parts)) >= min_examples
    assert_covers(parts, len(labels))


def test_redrawing_gives_up():
    with pytest.raises(ValueError, match=r"max_attempts=3 gave all 1000 clients min_examples=10 with alpha=0\.1"):
        fedvg_dirichlet(np.repeat(np.arange(10), 6000), 1000, 0.1, seed=0, max_attempts=3)


def test_iid_sizes_are_equal_up_to_one():
    sizes = {len(part) for part in iid(LABELS, 17, seed=0)}
    assert sizes <= {5001 // 17, 5001 // 17 + 1}


def test_shards_hold_few_classes_and_lose_none():
    labels = np.repeat(np.arange(10), 100)
    for part in shards(labels, 50, 2, seed=0):
        assert len(part) == 20 and len(np.unique(labels[part])) <= 2
    sizes = [len(part) for part in shards(LABELS, 17, 3, seed=0)]
    assert sum(sizes) == len(LABELS) and max(sizes) - min(sizes) <= 3
    with pytest.raises(ValueError, match="shards_per_client must be at least 1, got 0"):
        shards(labels, 5, 0, seed=0)
    with pytest.raises(ValueError, match="min_examples=4 is impossible"):
        shards(labels, 300, 4, seed=0)


@pytest.mark.parametrize(("num_clients", "classes"), [(17, 1), (17, 3), (4, 9), (200, 10)])
def test_every_client_has_exactly_k_classes(num_clients, classes):
    parts = classes_per_client(LABELS, num_clients, classes, seed=0)
    assert_covers(parts, len(LABELS))
    assert {len(np.unique(LABELS[part])) for part in parts} == {classes}
    sizes = np.array([len(part) for part in parts])
    assert sizes.max() <= 2 * sizes.min()  # pieces follow the classes' sizes


def test_few_examples_of_a_class_still_go_round():
    labels = np.repeat(np.arange(5), [400, 400, 400, 400, 3])
    for seed in range(20):
        parts = classes_per_client(labels, 40, 4, seed=seed, min_examples=30)
        assert_covers(parts, 1603)
        assert min(map(len, parts)) >= 30
        assert {len(np.unique(labels[part])) for part in parts} == {4}


def test_clients_below_the_minimum_are_lifted_exactly_where_that_is_possible():
    """Against the transport problem as a linear program: which examples of a class go to which of its holders."""
    rng = np.random.default_rng(0)
    outcomes = []
    for _ in range(60):
        table = rng.integers(1, 30, (5, 4)) * (rng.random((5, 4)) < 0.5)
        before, minimum = table.copy(), max(int(table.sum() / 5) - 1, 1)
        holds = before.ravel() > 0
        of_class, of_client = np.tile(np.eye(4), 5), np.kron(np.eye(5), np.ones(4))
        possible = linprog(
            np.zeros(20),
            A_ub=-of_client,
            b_ub=np.full(5, -minimum),
            A_eq=of_class,
            b_eq=before.sum(0),
            bounds=[(1, None) if held else (0, 0) for held in holds],
        ).success
        outcomes.append(possible)
        if not possible:
            with pytest.raises(ValueError, match="cannot be reached"):
                lift(table, minimum)
            continue
        lift(table, minimum)
        assert table.sum(1).min() >= minimum
        np.testing.assert_array_equal(table.sum(0), before.sum(0))
        np.testing.assert_array_equal(table > 0, before > 0)
    assert 10 < sum(outcomes) < 50


@pytest.mark.parametrize(
    ("num_clients", "classes", "message"),
    [
        (5, 0, "classes must be between 1 and the 10 that occur, got 0"),
        (5, 11, "classes must be between 1 and the 10 that occur, got 11"),
        (3, 3, "leave some of the 10 classes to nobody; use at least 4"),
        (500, 10, "rare classes have too few examples to go round; use at most 9"),
    ],
)
def test_impossible_numbers_of_classes(num_clients, classes, message):
    with pytest.raises(ValueError, match=message):
        classes_per_client(LABELS, num_clients, classes, seed=0)


def test_a_minimum_that_the_classes_do_not_allow():
    with pytest.raises(ValueError, match=r"min_examples=10 cannot be reached: client [01] has 2"):
        classes_per_client(np.array([0] * 50 + [1] * 2), 2, 1, seed=0, min_examples=10)


def test_quantity_skew_is_in_sizes_not_in_labels():
    labels = np.repeat(np.arange(4), 5000)
    parts = quantity_skew(labels, 20, 0.5, seed=0, min_examples=100)
    sizes = np.array([len(part) for part in parts])
    assert sizes.min() >= 100 and sizes.max() > 20 * sizes.min()
    shares = np.array([np.bincount(labels[part], minlength=4) for part in parts]) / sizes[:, None]
    assert (np.abs(shares - 0.25) < 5 * np.sqrt(0.25 * 0.75 / sizes[:, None])).all()


def test_natural_clients_do_not_depend_on_the_order_of_rows():
    ids = np.random.default_rng(0).choice([3, 5, 11], 40)
    shuffle = np.random.default_rng(1).permutation(40)
    for k, (part, shuffled) in enumerate(zip(by_group(ids), by_group(ids[shuffle]), strict=True)):
        assert set(ids[part]) == {[3, 5, 11][k]}
        np.testing.assert_array_equal(part, np.sort(shuffle[shuffled]))
    with pytest.raises(ValueError, match="group_ids is empty"):
        by_group(np.zeros(0, int))
