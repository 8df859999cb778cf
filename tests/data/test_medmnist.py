"""MedMNIST, tiny: the true layout with fewer examples."""

import zipfile

import numpy as np
import pytest
from damage import judges, odd, survives

from fedjax_geo.data import DatasetCorrupt, DatasetNotFound, load, medmnist


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def med_arrays(size=28, channels=(), classes=11):
    arrays = {}
    for part, n in {"train": 33, "val": 11, "test": 22}.items():
        arrays[f"{part}_images"] = noise(n, size, size, *channels, seed=n)
        arrays[f"{part}_labels"] = (np.arange(n) % classes).astype(np.uint8)[:, None]
    return arrays


def test_medmnist_pools_the_parts(tmp_path):
    arrays = med_arrays()
    np.savez_compressed(tmp_path / "organamnist.npz", **arrays)
    source = load("organamnist", data_dir=tmp_path)
    assert source.images.shape == (66, 28, 28, 1) and source.num_train == 44 and source.num_classes == 11
    parts = [arrays[f"{part}_images"] for part in ("train", "val", "test")]
    np.testing.assert_array_equal(source.images[..., 0], np.concatenate(parts))


def test_medmnist_as_fedvg_merges_it(tmp_path, monkeypatch):
    arrays = med_arrays(64, (3,), 7)
    np.savez(tmp_path / "dermamnist_64.npz", **arrays)
    source = medmnist("dermamnist", tmp_path, size=64, splits=("train", "test"))
    assert source.images.shape == (55, 64, 64, 3) and source.num_train == 33
    assert source.class_names[4] == "melanoma" and "NC" in source.licence
    np.testing.assert_array_equal(source.images[33:], arrays["test_images"])
    for wrong in ("size", "splits"):
        with pytest.raises(ValueError, match=f"{wrong} must be"):
            medmnist("dermamnist", tmp_path, **{wrong: {"size": 29, "splits": ("test", "train")}[wrong]})


def test_medmnist_in_its_own_folder(tmp_path):
    home = tmp_path / "home" / ".medmnist"
    home.mkdir(parents=True)
    np.savez(home / "bloodmnist.npz", **med_arrays(channels=(3,), classes=8))
    assert medmnist("bloodmnist").class_names == tuple(f"class {i}" for i in range(8))
    with pytest.raises(DatasetNotFound, match=r"bloodmnist_64\.npz in .*medmnist\.com"):
        medmnist("bloodmnist", size=64)


def test_wrong_medmnist(tmp_path):
    path, good = tmp_path / "organamnist.npz", med_arrays()
    for change, reason in [
        ({"val_images": np.zeros((11, 28, 28, 28), np.uint8)}, r"val_images is uint8 \(11, 28, 28, 28\)"),
        ({"val_images": np.zeros((11, 28, 28), np.float32)}, "val_images is float32"),
        ({"test_labels": np.zeros((22, 14), np.uint8)}, "one label each"),
        ({"test_labels": np.full((22, 1), 11, np.uint8)}, r"\[0, 11\), got 0 to 11"),
        ({"train_labels": np.array([[object()]])}, "plain numbers"),
    ]:
        np.savez(path, **good | change)
        with pytest.raises(DatasetCorrupt, match=reason):
            load("organamnist", data_dir=tmp_path)
    del good["test_images"]
    np.savez(path, **good)
    with pytest.raises(DatasetCorrupt, match="test_images"):
        load("organamnist", data_dir=tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DatasetCorrupt, match=r"organamnist\.npz"):
        load("organamnist", data_dir=tmp_path)


def test_a_header_that_promises_too_much(tmp_path):
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (99999999, 28, 28), }"
    content = b"\x93NUMPY\1\0" + (len(header) + 1).to_bytes(2, "little") + header + b"\n"
    with zipfile.ZipFile(tmp_path / "organamnist.npz", "w") as archive:
        archive.writestr("train_images.npy", content)
    with pytest.raises(DatasetCorrupt, match=r"expected \d+ for shape \(99999999, 28, 28\)"):
        load("organamnist", data_dir=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_random_damage_to_medmnist(tmp_path, save):
    (tmp_path / "here").mkdir()
    save(tmp_path / "here" / "organamnist.npz", **med_arrays())
    assert survives(lambda: load("organamnist", data_dir=tmp_path / "here"), tmp_path / "here") > 400


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_odd_arrays(tmp_path):
    rng, noticed = np.random.default_rng(0), 0
    for _ in range(1000):
        arrays = med_arrays()
        name = rng.choice(list(arrays))
        arrays[name] = odd(arrays[name], rng)
        np.savez(tmp_path / "organamnist.npz", **arrays)
        noticed += judges(lambda: load("organamnist", data_dir=tmp_path))
    assert noticed > 500
