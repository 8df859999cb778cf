"""MNIST and EMNIST, tiny: the true files with fewer examples."""

import gzip
import struct

import numpy as np
import pytest
from damage import survives

from fedjax_geo.data import DatasetCorrupt, DatasetNotFound, load
from fedjax_geo.data import _emnist as emnist
from fedjax_geo.data import _mnist as mnist


def idx(values):
    return struct.pack(f">4B{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()


def noise(n, seed):
    return np.random.default_rng(seed).integers(0, 256, (n, 28, 28)).astype(np.uint8)


@pytest.fixture
def digits(monkeypatch, tmp_path):
    counts = {"_TRAIN": [2, 1, 1, 1, 1, 1, 1, 1, 1, 1], "_TEST": [1] * 9 + [2]}
    for name, value in counts.items():
        monkeypatch.setattr(mnist, name, value)
    sizes = [(11, 28, 28), (11, 28, 28), (11,), (11,)]
    monkeypatch.setattr(mnist, "_FILES", dict(zip(mnist._FILES, sizes, strict=True)))
    folder = tmp_path / "here" / "MNIST" / "raw"
    folder.mkdir(parents=True)
    labels = [np.repeat(np.arange(10), c).astype(np.uint8) for c in counts.values()]
    for name, values in zip(mnist._FILES, [noise(11, 0), noise(11, 1), *labels], strict=True):
        if "images" in name:
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(values), 1))
        else:
            (folder / name).write_bytes(idx(values))
    return folder


def test_mnist(digits, tmp_path):
    source = load("mnist", data_dir=tmp_path / "here")
    np.testing.assert_array_equal(source.images[..., 0], np.concatenate([noise(11, 0), noise(11, 1)]))
    assert source.num_train == 11 and source.labels.tolist() == [0, *range(10), *range(10), 9]


def test_files_of_another_set_are_told(digits):
    path = digits / "train-labels-idx1-ubyte"
    path.write_bytes(idx(np.arange(11, dtype=np.uint8) % 10)[:-1] + b"\x01")
    with pytest.raises(DatasetCorrupt, match=r"train-labels.*are \[1, 2, 1.*MNIST has \[2, 1"):
        load("mnist", data_dir=digits)
    path.write_bytes(idx(np.full(11, 200, np.uint8)))
    with pytest.raises(DatasetCorrupt, match="train-labels"):
        load("mnist", data_dir=digits)
    path.unlink()
    with pytest.raises(DatasetNotFound, match=r"train-labels-idx1-ubyte.*cvdf-datasets/mnist"):
        load("mnist", data_dir=digits)


def put_emnist(monkeypatch, folder, cut):
    _, _, names, balanced = emnist.CUTS[cut]
    n = len(names)
    monkeypatch.setitem(emnist.CUTS, cut, (2 * n, n, names, balanced))
    folder.mkdir(parents=True)
    for part, size in (("train", 2 * n), ("test", n)):
        labels = (np.arange(size) % n + (cut == "letters")).astype(np.uint8)
        stem = folder / f"emnist-{cut}-{part}-"
        for name, values in (("images-idx3-ubyte", noise(size, size)), ("labels-idx1-ubyte", labels)):
            stem.with_name(f"{stem.name}{name}.gz").write_bytes(gzip.compress(idx(values), 1))
    return n


@pytest.mark.parametrize("cut", emnist.CUTS)
def test_emnist(monkeypatch, tmp_path, cut):
    n = put_emnist(monkeypatch, tmp_path / "gzip", cut)
    source = load(f"emnist_{cut}", data_dir=tmp_path)
    assert source.num_classes == n == {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 26}.get(cut, 10)
    assert source.num_train == 2 * n and len(source) == 3 * n
    np.testing.assert_array_equal(source.images[0, ..., 0], noise(2 * n, 2 * n)[0].T)
    np.testing.assert_array_equal(source.labels, np.tile(np.arange(n), 3))
    if cut == "bymerge":
        assert "".join(source.class_names[36:]) == "abdefghnqrt"


def test_wrong_emnist(monkeypatch, tmp_path):
    put_emnist(monkeypatch, tmp_path / "gzip", "letters")
    path = tmp_path / "gzip" / "emnist-letters-test-labels-idx1-ubyte.gz"
    for labels, reason in [
        (np.arange(26, dtype=np.uint8), r"\[0, 26\), got -1 to 24"),
        (np.ones(26, np.uint8), "26 examples of class 0, expected 1 of each"),
    ]:
        path.write_bytes(gzip.compress(idx(labels)))
        with pytest.raises(DatasetCorrupt, match=reason):
            load("emnist_letters", data_dir=tmp_path)
    path.unlink()
    with pytest.raises(
        DatasetNotFound, match=r"emnist-letters-test-labels-idx1-ubyte \(plain or \.gz\).*nist\.gov"
    ):
        load("emnist_letters", data_dir=tmp_path)


@pytest.mark.slow
def test_random_damage_to_mnist(digits):
    assert survives(lambda: load("mnist", data_dir=digits), digits) > 400


@pytest.mark.slow
@pytest.mark.parametrize("cut", ["byclass", "letters"])
def test_random_damage_to_emnist(monkeypatch, tmp_path, cut):
    put_emnist(monkeypatch, tmp_path / "gzip", cut)
    assert survives(lambda: load(f"emnist_{cut}", data_dir=tmp_path / "gzip"), tmp_path / "gzip") > 400
