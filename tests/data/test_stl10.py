"""STL-10, tiny: the true layout with fewer examples."""

import io
import tarfile

import numpy as np
import pytest
from damage import survives

from fedjax_geo.data import DatasetCorrupt, DatasetNotFound, load
from fedjax_geo.data import _stl10 as stl

STL_NAMES = ["airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck"]


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


@pytest.fixture
def small_stl(monkeypatch):
    monkeypatch.setattr(stl, "_EXAMPLES", {"train": 10, "test": 20})


def put_stl(folder, archive=False):
    """Writes the files; returns the images."""
    files, images = {}, []
    for part, n in stl._EXAMPLES.items():
        x = noise(n, 96, 96, 3, seed=n)
        images.append(x)
        files[f"{part}_X.bin"] = x.transpose(0, 3, 2, 1).tobytes()  # planes, column by column
        files[f"{part}_y.bin"] = bytes([1 + i % 10 for i in range(n)])
    files["class_names.txt"] = "\n".join(STL_NAMES).encode() + b"\n"
    folder.mkdir(parents=True, exist_ok=True)
    if archive:
        with tarfile.open(folder / "stl10_binary.tar.gz", "w:gz", compresslevel=1) as packed:
            for name, content in {"unlabeled_X.bin": bytes(100_000), **files}.items():
                info = tarfile.TarInfo(f"stl10_binary/{name}")
                info.size = len(content)
                packed.addfile(info, io.BytesIO(content))
    else:
        (folder / "stl10_binary").mkdir()
        for name, content in files.items():
            (folder / "stl10_binary" / name).write_bytes(content)
    return np.concatenate(images)


@pytest.mark.parametrize("archive", [False, True])
def test_stl10(tmp_path, small_stl, archive):
    images = put_stl(tmp_path / "here", archive)
    source = load("stl10", data_dir=tmp_path / "here")
    np.testing.assert_array_equal(source.images, images)
    assert source.labels.tolist() == [*range(10)] * 3 and source.num_train == 10
    assert source.class_names == tuple(STL_NAMES)


def test_wrong_stl10(tmp_path, small_stl):
    put_stl(tmp_path / "here")
    folder = tmp_path / "here" / "stl10_binary"
    labels = folder / "train_y.bin"
    good = labels.read_bytes()
    for content, reason in [
        (b"\0" + good[1:], r"\[0, 10\), got -1 to 9"),
        (b"\x02" + good[1:], "expected 1 of each"),
        (good[:-1], "train_y.bin: holds 9 bytes, expected exactly 10"),
    ]:
        labels.write_bytes(content)
        with pytest.raises(DatasetCorrupt, match=reason):
            load("stl10", data_dir=folder)
    labels.unlink()
    with pytest.raises(DatasetNotFound, match=r"train_y\.bin.*stl10_binary\.tar\.gz.*acoates"):
        load("stl10", data_dir=folder)


@pytest.mark.slow
@pytest.mark.parametrize("archive", [False, True])
def test_random_damage_to_stl10(tmp_path, small_stl, archive):
    put_stl(tmp_path / "here", archive)
    assert survives(lambda: load("stl10", data_dir=tmp_path / "here"), tmp_path / "here") > 400
