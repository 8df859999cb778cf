"""Decoded arrays are made once, and never believed when their files are damaged."""

import os

import numpy as np
import pytest

from fedjax_geo.data._cache import cached

ARRAYS = {"images": np.arange(24, dtype=np.uint8).reshape(2, 3, 4), "labels": np.array([1, 0], np.int32)}


class Builder:
    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return {name: array.copy() for name, array in ARRAYS.items()}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    return path


def get(files, build, name="toy"):
    arrays = cached(name, files, build)
    assert list(arrays) == list(ARRAYS)
    for key, array in arrays.items():
        np.testing.assert_array_equal(array, ARRAYS[key])
        assert array.dtype == ARRAYS[key].dtype
    return arrays


def test_built_once_and_memory_mapped(file):
    build = Builder()
    for _ in range(3):
        array = get([file], build)["images"]
    assert build.calls == 1 and isinstance(array.base, np.memmap) and not array.flags.writeable


def test_known_by_content_not_by_place(file, tmp_path):
    build = Builder()
    get([file], build)
    other = tmp_path / "elsewhere"
    other.write_bytes(b"content")
    get([other], build)
    assert build.calls == 1
    other.write_bytes(b"changed")
    get([other], build)
    get([file], build, "toy-with-an-option")
    get([file, other], build)
    assert build.calls == 4


def test_many_files_are_known_by_size_and_time(tmp_path):
    files = [tmp_path / str(i) for i in range(20)]
    for path in files:
        path.write_bytes(b"x")
    build = Builder()
    get(files, build)
    get(files, build)
    assert build.calls == 1
    os.utime(files[3], ns=(1, 1))
    get(files, build)
    files[4].write_bytes(b"xy")
    get(files, build)
    assert build.calls == 3


def entry(tmp_path):
    (folder,) = (tmp_path / "cache").iterdir()
    return folder


@pytest.mark.parametrize("name", ["images.npy", "labels.npy", "index.json"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: b"",
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: content.replace(b"1", b"9", 1).replace(b"2", b"8", 1),
        lambda content: b"[]",
        None,
    ],
)
def test_damaged_entries_are_made_anew(file, tmp_path, name, damage):
    build = Builder()
    get([file], build)
    path = entry(tmp_path) / name
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    get([file], build)
    assert build.calls == 2
    get([file], build)
    assert build.calls == 2 and len(list((tmp_path / "cache").iterdir())) == 1


def test_a_failed_build_leaves_nothing(file, tmp_path):
    def fail():
        raise KeyError("half way")

    with pytest.raises(KeyError):
        cached("toy", [file], fail)
    assert not (tmp_path / "cache").exists()


def test_a_failed_write_leaves_nothing(file, tmp_path, monkeypatch):
    def fail(path, array, **_):
        raise OSError("disk full")

    monkeypatch.setattr("numpy.save", fail)
    with pytest.warns(UserWarning, match="cannot be kept.*disk full"):
        get([file], Builder())
    assert list((tmp_path / "cache").iterdir()) == []


def test_somebody_else_was_first(file, tmp_path):
    def build():
        get([file], Builder())
        return Builder()()

    get([file], build)
    assert entry(tmp_path).is_dir()


def test_a_cache_that_cannot_be_written(file, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDJAX_GEO_CACHE", str(file / "below a file"))
    with pytest.warns(UserWarning, match="cannot be kept"):
        get([file], Builder())


def test_the_usual_place(file, tmp_path, monkeypatch):
    monkeypatch.delenv("FEDJAX_GEO_CACHE")
    get([file], Builder())
    assert len(list((tmp_path / "home" / ".cache" / "fedjax_geo" / "decoded").iterdir())) == 1
