"""Data sets by name: the embedded one always, Fashion-MNIST where its files are."""

import gzip
import hashlib
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedjax_geo.data import DatasetCorrupt, DatasetNotFound, load
from fedjax_geo.data import _fashion_mnist as fashion

FORM_BOUNDARIES = [0, 130, 256, 386, 516, 646, 776, 906, 1029, 1157, 1287, 1415, 1545, 1667, 1797]
SYSTEM = Path("/usr/share/datasets/fashion-mnist")


def test_digits_are_the_known_ones():
    source = load("digits_forms")
    assert source.images.dtype == np.uint8 and source.images.max() == 16
    content = source.images.tobytes() + source.labels.astype(np.uint8).tobytes()
    assert hashlib.sha256(content).hexdigest() == (
        "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"
    )
    expected = np.repeat(np.arange(14), np.diff(FORM_BOUNDARIES))
    np.testing.assert_array_equal(source.client_ids, expected)
    np.testing.assert_allclose(source.prepare(source.images).max(), 1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.zeros(3, np.int32)}, "there are 3 labels"),
        ({"class_names": tuple("012345678")}, r"labels must be in \[0, 9\), got 0 to 9"),
        ({"client_names": ()}, r"client_ids must be in \[0, 0\), got 0 to 13"),
    ],
)
def test_sources_are_checked(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(load("digits_forms"), **changes)


def test_unknown_name_is_told_the_known_ones():
    with pytest.raises(ValueError, match=r"known are .*digits_forms, .*; did you mean 'fashion_mnist'"):
        load("fashion-mnist")
    with pytest.raises(ValueError, match=r"known are [a-z0-9_, ]+$"):
        load("zzz")


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Write a small set of the four files, and let the loader expect these."""

    def write(folder):
        folder = tmp_path / folder
        folder.mkdir(parents=True)
        facts = {}
        for name, shape in zip(fashion._FILES, [(6, 28, 28), (2, 28, 28), (6,), (2,)], strict=True):
            values = np.random.default_rng(len(facts)).integers(0, 10, shape).astype(np.uint8)
            content = struct.pack(f">4B{len(shape)}I", 0, 0, 8, len(shape), *shape) + values.tobytes()
            facts[name] = (shape, hashlib.sha256(content).hexdigest())
            if "labels" in name:
                (folder / name).write_bytes(content)
            else:
                (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        monkeypatch.setattr(fashion, "_FILES", facts)
        return folder

    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FEDJAX_GEO_DATA", raising=False)
    monkeypatch.setattr("fedjax_geo.data._places.SYSTEM", tmp_path / "system")
    return write


@pytest.mark.parametrize("subfolder", ["", "fashion_mnist", "fashion-mnist", "FashionMNIST/raw"])
def test_finds_files_in_the_data_dir(tiny, tmp_path, subfolder):
    tiny(f"somewhere/{subfolder}")
    source = load("fashion_mnist", data_dir=tmp_path / "somewhere")
    assert source.images.shape == (8, 28, 28, 1) and source.labels.shape == (8,) and source.num_train == 6
    assert str(tmp_path / "somewhere") in source.provenance
    train = source.official_train()
    np.testing.assert_array_equal(train.images, source.images[:6])
    np.testing.assert_array_equal(train.labels, source.labels[:6])


@pytest.mark.parametrize("place", ["variable", "home/.cache/fedjax_geo/fashion_mnist", "system/fashion-mnist"])
def test_finds_files_in_the_usual_places(tiny, tmp_path, monkeypatch, place):
    monkeypatch.setenv("FEDJAX_GEO_DATA", str(tmp_path / "variable"))
    folder = tiny(place)
    assert load("fashion_mnist").provenance.endswith(str(folder))


def test_a_given_data_dir_is_the_only_place(tiny, tmp_path):
    tiny("system/fashion-mnist")
    with pytest.raises(DatasetNotFound, match="elsewhere"):
        load("fashion_mnist", data_dir=tmp_path / "elsewhere")


def test_missing_files_are_named_with_the_places_and_the_remedy(tiny, tmp_path):
    folder = tiny("home/.cache/fedjax_geo")
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DatasetNotFound) as caught:
        load("fashion_mnist")
    assert "\n" not in str(caught.value)
    for part in (
        *fashion._FILES,
        str(folder),
        str(tmp_path / "system"),
        "dataset-fashion-mnist",
        "FEDJAX_GEO_DATA",
    ):
        assert part in str(caught.value)


def test_counts_of_images_and_labels_must_agree(tiny, tmp_path):
    folder = tiny("here")
    (folder / "train-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01" + struct.pack(">I", 5) + bytes(5))
    with pytest.raises(DatasetCorrupt, match=r"train-labels.*shape \(5,\), expected \(6,\)"):
        load("fashion_mnist", data_dir=folder)


@pytest.mark.skipif(not SYSTEM.is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
def test_real_fashion_mnist(tmp_path):
    source = load("fashion_mnist", data_dir=SYSTEM)
    assert source.images.shape == (70_000, 28, 28, 1) and source.num_train == 60_000
    np.testing.assert_array_equal(np.bincount(source.labels[:60_000]), [6_000] * 10)
    np.testing.assert_array_equal(np.bincount(source.labels[60_000:]), [1_000] * 10)
    share = np.bincount(source.official_train().images.ravel(), minlength=256) / (60_000 * 28 * 28)
    values = np.arange(256) / 255
    mean = share @ values
    np.testing.assert_allclose([source.prepare.mean[0]], mean, atol=1e-4)
    np.testing.assert_allclose([source.prepare.std[0]], np.sqrt(share @ (values - mean) ** 2), atol=1e-4)

    damaged = tmp_path / "train-labels-idx1-ubyte.gz"
    for file in SYSTEM.glob("*.gz"):
        (tmp_path / file.name).symlink_to(file)
    damaged.unlink()
    shutil.copy(SYSTEM / damaged.name, damaged)
    damaged.write_bytes(damaged.read_bytes()[:-100])
    with pytest.raises(DatasetCorrupt, match="train-labels"):
        load("fashion_mnist", data_dir=tmp_path)
