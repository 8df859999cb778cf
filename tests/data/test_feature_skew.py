"""Groups that look different: the same examples, each shifted as its group is, nothing lost."""

from functools import partial

import numpy as np
import pytest

from fedjax_geo.data import (
    contrast,
    dirichlet,
    feature_skew,
    federate,
    iid,
    load,
    pooled_clients,
    rotation,
    within_groups,
)

DIGITS = load("digits_forms")


@pytest.mark.parametrize("turns", [0, 1, 2, 3, -1])
@pytest.mark.parametrize("size", [(6, 6, 3), (5, 5, 1)])
def test_quarter_turns_are_exact(size, turns):
    images = np.random.default_rng(0).integers(0, 256, (3, *size)).astype(np.uint8)
    turned = rotation(90 * turns)(images, 255)
    assert turned.dtype == np.uint8
    np.testing.assert_array_equal(turned, np.rot90(images, turns, axes=(1, 2)))


def test_any_angle_is_bilinear():
    images = np.random.default_rng(0).integers(0, 256, (2, 5, 8, 1)).astype(np.uint8)
    turned = rotation(25)(images, 255)
    cos, sin = np.cos(np.deg2rad(25)), np.sin(np.deg2rad(25))
    for row, column in np.ndindex(5, 8):
        y, x = row - 2, column - 3.5
        r, c = cos * y + sin * x + 2, cos * x - sin * y + 3.5
        near = [(i, j) for i, j in np.ndindex(5, 8) if abs(i - r) < 1 and abs(j - c) < 1]
        value = sum((1 - abs(i - r)) * (1 - abs(j - c)) * images[:, i, j] for i, j in near)
        assert np.abs(turned[:, row, column] - value).max() < 0.51


def test_contrast_about_the_middle_grey():
    images = np.array([0, 4, 8, 12, 16], np.uint8).reshape(1, 1, 5, 1)
    for factor, expected in ((1, [0, 4, 8, 12, 16]), (0.5, [4, 6, 8, 10, 12]), (3, [0, 0, 8, 16, 16])):
        assert contrast(factor)(images, 16).ravel().tolist() == expected
    np.testing.assert_array_equal(contrast(-1)(images, 16), 16 - images)


def test_each_group_is_shifted_as_a_whole_and_nothing_else_changes():
    shifts = [rotation(0), rotation(90), contrast(-1)]
    shifted = feature_skew(DIGITS, shifts, partial(dirichlet, alpha=0.5), seed=4)
    np.testing.assert_array_equal(shifted.labels, DIGITS.labels)
    undo = [lambda x: x, lambda x: np.rot90(x, -1, axes=(1, 2)), lambda x: 16 - x]
    expected = dirichlet(DIGITS.labels, 3, 0.5, seed=4)
    for group, (part, back) in enumerate(zip(expected, undo, strict=True)):
        np.testing.assert_array_equal(np.flatnonzero(shifted.client_ids == group), np.sort(part))
        np.testing.assert_array_equal(back(shifted.images[part]), DIGITS.images[part])
    assert shifted.client_names == ("rotated by 0 degrees", "rotated by 90 degrees", "of contrast -1")
    assert shifted.provenance.endswith(
        "synthetic feature shift of 3 groups by dirichlet(alpha=0.5), seed 4: "
        "rotated by 0 degrees, rotated by 90 degrees, of contrast -1"
    )


def test_in_a_federation_the_servers_examples_are_shifted_too():
    shifted = feature_skew(DIGITS, [rotation(0), contrast(-1)], iid)
    data = federate(shifted, within_groups(iid), num_clients=6, validation=pooled_clients(0.2))
    assert data.client_names[0] == "rotated by 0 degrees, 0" and data.num_clients == 6
    for client in range(6):
        own = data.train.indices[client, : data.train.sizes[client]]
        inverted = data.examples.x[own].mean() > 8
        assert inverted == data.client_names[client].startswith("of contrast -1")
    inverted = data.validation.x.mean((1, 2, 3)) > 8
    assert 0.4 < inverted.mean() < 0.6


def test_natural_clients_each_with_a_shift():
    shifted = feature_skew(DIGITS, [rotation(10 * k) for k in range(14)])
    np.testing.assert_array_equal(shifted.client_ids, DIGITS.client_ids)
    assert shifted.client_names[3] == "form 3 rotated by 30 degrees"
    assert (
        "14 natural clients: rotated by 0 degrees, rotated by 10 degrees, ..., rotated by 130"
        in shifted.provenance
    )


def test_what_does_not_fit():
    with pytest.raises(ValueError, match="shifts must be as many as the 14 groups, got 2"):
        feature_skew(DIGITS, [rotation(0)] * 2)
    with pytest.raises(ValueError, match="each of the 1797 examples into one group"):
        feature_skew(DIGITS, [rotation(0)], lambda labels, n, *, seed: [np.arange(5)])
    for make, name in ((rotation, "degrees"), (contrast, "factor")):
        with pytest.raises(ValueError, match=f"{name} must be finite, got nan"):
            make(float("nan"))
