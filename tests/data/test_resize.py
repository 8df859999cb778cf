"""Other sizes: padding and repeating are exact, interpolation is Pillow's."""

from dataclasses import replace

import numpy as np
import pytest

from fedjax_geo.data import Source, as_rgb, load, padded, resize, resized, scale

DIGITS = load("digits_forms")


def made(shape):
    images = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    return Source(images, np.zeros(len(images), np.int32), ("a",), scale(255), len(images), "made", "none")


def test_fashion_mnist_as_cifar_sees_it():
    source = made((3, 28, 28, 1))
    wide = as_rgb(padded(source, 32))
    assert wide.images.shape == (3, 32, 32, 3) and wide.images.dtype == np.uint8
    for channel in range(3):
        np.testing.assert_array_equal(wide.images[:, 2:30, 2:30, channel], source.images[..., 0])
    assert int(wide.images.sum(dtype=np.int64)) == 3 * int(source.images.sum(dtype=np.int64))
    assert wide.provenance == "made, padded to 32x32, grey as RGB"
    assert as_rgb(wide) is wide


def test_an_odd_pixel_goes_below_or_right():
    wide = padded(made((2, 4, 5, 3)), (7, 6)).images
    assert wide.shape == (2, 7, 6, 3)
    assert not wide[:, :1].any() and not wide[:, 5:].any() and not wide[:, :, 5:].any()
    np.testing.assert_array_equal(wide[:, 1:5, :5], made((2, 4, 5, 3)).images)


@pytest.mark.parametrize("size", [(32, 32), (16, 50), (7, 96), (96, 96), (224, 224)])
def test_interpolation_is_pillows(size):
    image = pytest.importorskip("PIL.Image")
    source = made((2, 96, 96, 3))
    ours = resized(source, size).images
    assert ours.shape == (2, *size, 3) and ours.dtype == np.uint8
    for mine, original in zip(ours, source.images, strict=True):
        theirs = image.fromarray(original).resize(size[::-1], image.Resampling.BILINEAR)
        assert np.abs(mine.astype(int) - np.asarray(theirs)).max() <= 1
    on_device = resize(size)(source.images)
    assert np.abs(np.asarray(on_device) - ours).max() <= 0.501


def test_resizing_keeps_the_mean_and_a_constant():
    source = made((300, 12, 12, 1))
    np.testing.assert_array_equal(resized(source, 12).images, source.images)
    assert (resized(replace(source, images=np.full((300, 12, 12, 1), 77, np.uint8)), (5, 31)).images == 77).all()
    assert abs(resized(source, 6).images.mean() - source.images.mean()) < 0.5


def test_on_the_device_grey_is_repeated():
    wide = resize((10, 6), channels=3)(DIGITS.images[:2])
    assert wide.shape == (2, 10, 6, 3)
    np.testing.assert_array_equal(wide[..., 0], wide[..., 2])
    assert resize(4) == resize((4, 4)) and hash(resize(4)) == hash(resize((4, 4)))


def test_bad_sizes():
    with pytest.raises(ValueError, match="size=8x7 must not be below the 8x8 pixels"):
        padded(DIGITS, (8, 7))
    for make in (resize, lambda size: resized(DIGITS, size), lambda size: padded(DIGITS, size)):
        with pytest.raises(ValueError, match="size must be a whole number of at least 1, got 0"):
            make((8, 0))
    with pytest.raises(ValueError, match="images of 1 or 3 channels, got 2"):
        as_rgb(made((1, 4, 4, 2)))
    with pytest.raises(ValueError, match="channels=3 cannot be made of images"):
        resize(4, channels=3)(np.zeros((1, 4, 4, 2)))
