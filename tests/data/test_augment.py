"""Crops and flips: the same as moving every image by hand, and other ones for every client and step."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_geo import Method, Strategy, Work, make_round
from fedjax_geo.aggregators import weighted_mean
from fedjax_geo.clients import local_sgd
from fedjax_geo.data import ClientParts, Source, assemble, crop_flip, in_order, scale
from fedjax_geo.data._augment import offsets
from fedjax_geo.models import mlp
from fedjax_geo.objective import cross_entropy
from fedjax_geo.types import Task
from fedjax_geo.weightings import by_examples

KEY = jax.random.key(3)


def by_hand(images, pad, flip, key):
    """Every pixel of the result on its own: where it came from, or black."""
    top, left, mirror = map(np.asarray, offsets(key, len(images), pad))
    b, height, width, _ = images.shape
    moved = np.zeros(images.shape, np.float64)
    for i in range(b):
        for row in range(height):
            for column in range(width):
                r = row + top[i] - pad
                c = (width - 1 - column if flip and mirror[i] else column) + left[i] - pad
                if 0 <= r < height and 0 <= c < width:
                    moved[i, row, column] = images[i, r, c]
    return moved


@pytest.mark.parametrize(("shape", "pad", "flip"), [((9, 8, 8, 3), 4, True), ((7, 5, 9, 1), 2, False)])
def test_like_moving_by_hand(shape, pad, flip):
    images = np.random.default_rng(0).integers(1, 256, shape).astype(np.uint8)
    mean, std = np.linspace(0.3, 0.5, shape[-1]), np.linspace(0.2, 0.3, shape[-1])
    move = crop_flip(pad, flip=flip)
    both = (move, in_order(move, scale(255, mean, std)))
    moved, scaled = jax.jit(lambda x, key: [prepare(x, train=True, key=key) for prepare in both])(images, KEY)
    assert moved.dtype == jnp.uint8
    np.testing.assert_array_equal(moved, by_hand(images, pad, flip, KEY))
    expected = (by_hand(images, pad, flip, jax.random.fold_in(KEY, 0)) / 255 - mean) / std
    np.testing.assert_allclose(scaled, expected, rtol=1e-5, atol=1e-6)


def test_nothing_happens_outside_training():
    images = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    for key in (None, KEY):
        same = crop_flip()(images, train=False, key=key)
        np.testing.assert_array_equal(same, images)
        assert same.dtype == jnp.uint8


def test_places_are_equally_likely_and_half_are_mirrored():
    top, left, mirror = offsets(KEY, 9000, 4)
    for place in (top, left):
        counts = np.bincount(place, minlength=9)
        assert len(counts) == 9 and (np.abs(counts - 1000) < 5 * np.sqrt(1000 * 8 / 9)).all()
    assert abs(int(mirror.sum()) - 4500) < 5 * np.sqrt(9000) / 2
    assert abs(np.corrcoef([top, left, mirror])[np.triu_indices(3, 1)]).max() < 0.05


def test_mapping_changes_nothing():
    images = np.random.default_rng(1).integers(0, 256, (4, 6, 6, 3)).astype(np.uint8)
    keys = jax.random.split(KEY, 3)

    def move(key):
        return crop_flip(2)(images, train=True, key=key)

    side_by_side, in_turn = jax.jit(lambda keys: (jax.vmap(move)(keys), jax.lax.map(move, keys)))(keys)
    assert len({moved.tobytes() for moved in np.asarray(in_turn)}) == 3
    np.testing.assert_array_equal(side_by_side, in_turn)
    np.testing.assert_array_equal(in_turn[2], by_hand(images, 2, True, keys[2]))


def test_clients_and_steps_get_crops_of_their_own():
    """A round of two clients and two steps each, all images the same."""
    picture = np.random.default_rng(2).integers(0, 256, (1, 6, 6, 1)).astype(np.uint8)
    source = Source(np.repeat(picture, 8, 0), np.zeros(8, np.int32), ("a", "b"), scale(255), 8, "made", "none")
    parts = ClientParts(np.split(np.arange(8), 2), [np.zeros(0, int)] * 2)
    seen = []

    def spy(x, *, train=False, key=None):
        x = in_order(crop_flip(3), scale(255))(x, train=train, key=key)
        jax.debug.callback(lambda x: seen.append(np.asarray(x)) if train else None, x)
        return x

    data = assemble(source, parts, prepare=spy)
    method = Method(local_sgd(optax.sgd(0.1)), by_examples(), optax.chain(weighted_mean(), optax.sgd(1.0)))
    task = Task(mlp(2, hidden=()), data.prepare, cross_entropy)
    process = make_round(method, task, cohort=2, work=Work(2), strategy=Strategy(chunk=1), diagnose=None)
    state = process.init(KEY, data)
    state, _ = jax.jit(process.step)(state, KEY, jax.tree.map(jnp.asarray, data))
    jax.effects_barrier()
    assert len(seen) == 4 and len({batch.tobytes() for batch in seen}) == 4


def test_is_a_value():
    assert crop_flip() == crop_flip(4, flip=True) != crop_flip(3)
    assert len({in_order(crop_flip(2), scale(16)), in_order(crop_flip(2), scale(16)), in_order(scale(16))}) == 2


def test_bad_input():
    for pad in (-1, 1.5):
        with pytest.raises(ValueError, match=f"pad must be a whole number of at least 0, got {pad}"):
            crop_flip(pad)
    with pytest.raises(ValueError, match=r"needs images \[b, height, width, channels\], got shape \(2, 4, 4\)"):
        crop_flip()(np.zeros((2, 4, 4), np.uint8), train=True, key=KEY)
    with pytest.raises(ValueError, match="needs a key in training"):
        crop_flip()(np.zeros((2, 4, 4, 1), np.uint8), train=True)
    with pytest.raises(ValueError, match="at least one step"):
        in_order()
