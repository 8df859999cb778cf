"""The partitions of two papers, against statistics of their authors' own programs."""

import numpy as np
import pytest

from fedjax_geo.data import _craft_dirichlet as craft_module
from fedjax_geo.data import craft_dirichlet, fedvg_dirichlet

CIFAR10 = np.tile(np.arange(10), 6000)
CIFAR100 = np.tile(np.arange(100), 600)


def skew(labels, parts):
    """Mean number of classes and mean share of the commonest class."""
    counts = np.array([np.bincount(labels[part], minlength=labels.max() + 1) for part in parts])
    return round((counts > 0).sum(1).mean(), 2), round((counts.max(1) / counts.sum(1)).mean(), 3)


CRAFT = {
    "cifar10-1000": (
        (CIFAR10, 1000, False),
        {"first": [185, 93, 20, 39, 20], "size": (20, 41, 188), "std": 48.4, "attempts": 200},
        {"train": (47_713, 16, 150), "test": (12_287, 4, 9, 38), "classes": 4.18, "top": 0.618},
    ),
    "cifar100-1000": (
        (CIFAR100, 1000, False),
        {"first": [20, 20, 20, 81, 53], "size": (20, 58, 132), "std": 18.8, "attempts": 1},
        {"train": (47_598, 16, 105), "test": (12_402, 4, 12, 27), "classes": 20.75, "top": 0.209},
    ),
    "cifar10-1000-balanced": (
        (CIFAR10, 1000, True),
        {"first": [60] * 5, "size": (60, 60, 60), "std": 0, "attempts": 200},
        {"train": (48_000, 48, 48), "test": (12_000, 12, 12, 12), "classes": 6.44, "top": 0.535},
    ),
    "cifar100-1000-balanced": (
        (CIFAR100, 1000, True),
        {"first": [60] * 5, "size": (60, 60, 60), "std": 0, "attempts": 200},
        {"train": (48_000, 48, 48), "test": (12_000, 12, 12, 12), "classes": 20.25, "top": 0.230},
    ),
    "cifar10-100": (
        (CIFAR10, 100, False),
        {"first": [1791, 400, 976, 312, 693], "size": (20, 413, 1950), "std": 503.6, "attempts": 1},
        {"train": (47_964, 16, 1560), "test": (12_036, 4, 83, 390), "classes": 4.99, "top": 0.670},
    ),
    "cifar10-100-balanced": (
        (CIFAR10, 100, True),
        {"first": [600] * 5, "size": (600, 600, 600), "std": 0, "attempts": 8},
        {"train": (48_000, 480, 480), "test": (12_000, 120, 120, 120), "classes": 6.82, "top": 0.543},
    ),
}


@pytest.mark.parametrize(("case", "sizes_are", "cut_is"), CRAFT.values(), ids=CRAFT)
def test_craft(monkeypatch, case, sizes_are, cut_is):
    labels, num_clients, balanced = case
    attempts = []
    draw = craft_module._draw
    monkeypatch.setattr(craft_module, "_draw", lambda *args: attempts.append(1) or draw(*args))
    train, test, _ = craft_dirichlet(labels, num_clients, 0.1, seed=77, balanced=balanced)

    parts = [np.concatenate(pair) for pair in zip(train, test, strict=True)]
    sizes, trains, tests = (np.array([len(part) for part in use]) for use in (parts, train, test))
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(60_000))
    assert sizes_are == {
        "first": sizes[:5].tolist(),
        "size": (sizes.min(), int(np.median(sizes)), sizes.max()),
        "std": round(sizes.std(), 1),
        "attempts": len(attempts),
    }
    classes, top = skew(labels, parts)
    assert cut_is == {
        "train": (trains.sum(), trains.min(), trains.max()),
        "test": (tests.sum(), tests.min(), int(np.median(tests)), tests.max()),
        "classes": classes,
        "top": top,
    }


@pytest.mark.parametrize(
    ("labels", "num_clients", "below_20", "smallest", "largest"),
    [(CIFAR10, 1000, 298, 1, 439), (CIFAR100, 1000, 3, 16, 140), (CIFAR10, 100, 2, 9, 1968)],
)
def test_craft_before_the_top_up(labels, num_clients, below_20, smallest, largest):
    parts = craft_dirichlet(labels, num_clients, 0.1, seed=77, min_examples=0)
    sizes = np.array([len(a) + len(b) for a, b in zip(parts.train, parts.test, strict=True)])
    assert ((sizes < 20).sum(), sizes.min(), sizes.max()) == (below_20, smallest, largest)


def test_craft_balanced_leftovers_go_one_each():
    labels = np.tile(np.arange(10), 6000)[:59_998]
    parts = craft_dirichlet(labels, 7, 0.1, seed=0, balanced=True)
    assert [len(a) + len(b) for a, b in zip(parts.train, parts.test, strict=True)] == [8572] + [8571] * 6


FEDVG = {
    100: (1, (556, 599, 655), 19.4, (39_076, 5_957, 14_967), 362, 10, [605, 595, 600, 612, 597]),
    10: (1, (430, 591, 808), 64.9, (39_081, 5_955, 14_964), 280, 10, [616, 653, 554, 693, 668]),
    1: (1, (186, 583, 1119), 178.7, (39_089, 5_950, 14_961), 122, 9.94, [463, 563, 527, 462, 641]),
    0.1: (8, (14, 495, 3091), 547.4, (39_092, 5_954, 14_954), 10, 4.98, [669, 207, 551, 748, 287]),
    0.05: (10_826, (10, 236, 4666), 791.3, (39_081, 5_957, 14_962), 7, 3.48, [768, 580, 182, 2287, 251]),
}


@pytest.mark.parametrize("alpha", [100, 10, 1, 0.1, pytest.param(0.05, marks=pytest.mark.slow)])
def test_fedvg(alpha):
    attempts, *expected = FEDVG[alpha]
    parts = fedvg_dirichlet(CIFAR10, 100, alpha, seed=42, max_attempts=attempts)
    sizes = np.array([len(part) for part in parts])
    test, validation = sizes // 4, sizes // 10
    train = sizes - test - validation
    assert expected == [
        (sizes.min(), int(np.median(sizes)), sizes.max()),
        round(sizes.std(), 1),
        (train.sum(), validation.sum(), test.sum()),
        train.min(),
        skew(CIFAR10, parts)[0],
        sizes[:5].tolist(),
    ]
    if 1 < attempts < 100:
        with pytest.raises(ValueError, match="max_attempts"):
            fedvg_dirichlet(CIFAR10, 100, alpha, seed=42, max_attempts=attempts - 1)
