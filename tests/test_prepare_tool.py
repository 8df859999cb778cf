"""What ``experiments.prepare`` writes, read back by us and by tensorflow-datasets itself."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments import prepare, tfds_folder
from fedjax_geo import data
from fedjax_geo.data import Source
from fedjax_geo.data._images import decode
from fedjax_geo.data._prepared import TFDS
from fedjax_geo.data._tfrecord import masked_crc, parse_example, read_tfrecord

pytest.importorskip("PIL.Image", reason="writing images needs Pillow")

FASHION = Path("/usr/share/datasets/fashion-mnist")
needs_fashion = pytest.mark.skipif(not FASHION.exists(), reason=f"no Fashion-MNIST in {FASHION}")
needs_tfds = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("tensorflow_datasets", "array_record"))),
    reason="tensorflow-datasets or array_record is not installed",
)
by_tfds = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def own_places(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FEDJAX_GEO_CACHE", str(tmp_path / "cache"))
    for name in ("FEDJAX_GEO_DATA", "TFDS_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)


def same(source, other):
    np.testing.assert_array_equal(source.images, other.images)
    np.testing.assert_array_equal(source.labels, other.labels)
    assert (source.num_train, source.class_names) == (other.num_train, other.class_names)


def first(source, train, test):
    return source.take(np.r_[:train, source.num_train : source.num_train + test])


def test_digits_are_written_in_order_once_and_nothing_else_is_touched(tmp_path, capsys):
    config = prepare.Config(("digits_forms",), out=tmp_path / "out", form="tfrecord")
    prepare.main(config)
    folder = tmp_path / "out" / "digits_forms" / "1.0.0"
    digits = data.load("digits_forms")
    [file] = folder.glob("*.tfrecord-*")
    records = [parse_example(file, record) for record in read_tfrecord(file)]
    np.testing.assert_array_equal([decode(r["image"][0], file, mode="L") for r in records], digits.images)
    assert [r["label"][0] for r in records] == digits.labels.tolist()
    assert [r["client_id"][0] for r in records] == digits.client_ids.tolist()
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")  # the reader leaves the content's own checksum alone
    assert int.from_bytes(content[12 + length : 16 + length], "little") == masked_crc(content[12 : 12 + length])

    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    prepare.main(config)
    assert (
        "written" in (out := capsys.readouterr().out)
        and "was there already, the same" in out
        and str(folder) in out
    )
    assert before == {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert list(folder.parent.iterdir()) == [folder]

    table = prepare.table("digits_forms", digits, None)
    with pytest.raises(FileExistsError, match=r"holds other examples: .*nothing is overwritten"):
        tfds_folder.write(table._replace(images=255 - table.images), tmp_path / "out")
    with pytest.raises(FileExistsError, match="as tfrecord, not array_record"):
        tfds_folder.write(table, tmp_path / "out", "array_record")
    file.write_bytes(content[:-1])
    with pytest.raises(FileExistsError, match=r"is damaged \(digits_forms-train"):
        tfds_folder.write(table, tmp_path / "out")
    (folder / tfds_folder.MANIFEST).unlink()
    with pytest.raises(FileExistsError, match="was not written by this tool"):
        tfds_folder.write(table, tmp_path / "out")
    assert file.read_bytes() == content[:-1]


def test_a_folder_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    def breaks(*_):
        yield b"one record"
        raise OSError("disk full")

    monkeypatch.setattr(tfds_folder, "_records", breaks)
    table = prepare.table("digits_forms", data.load("digits_forms"), None)
    with pytest.raises(OSError, match="disk full"):
        tfds_folder.write(table, tmp_path, "tfrecord")
    assert not list((tmp_path / "digits_forms").iterdir())


@pytest.mark.parametrize("name", TFDS)
def test_what_tensorflow_datasets_knows_reads_back_by_name(tmp_path, monkeypatch, name):
    """In its version and manner: parts, transposed EMNIST, labels from 1, the two labels of CIFAR-100."""
    facts, rng = TFDS[name], np.random.default_rng(0)
    classes = facts.classes if not isinstance(facts.classes, int) else tuple(f"n{i}" for i in range(facts.classes))
    images = rng.integers(0, 256, (9, *facts.shape), dtype=np.uint8)

    def load(asked, *_):
        count = 20 if asked == "cifar100_coarse" else len(classes)
        labels = np.arange(9, dtype=np.int32) % min(count, 7)
        return Source(images, labels, tuple(classes[:count]), facts.prepare, 6, "made", facts.licence)

    if name == "cifar100_coarse":
        classes = tuple(f"n{i}" for i in range(100))
    monkeypatch.setattr(prepare, "load", load)
    monkeypatch.setattr(prepare.data, "medmnist", lambda *_, **__: range(4))
    monkeypatch.setattr(tfds_folder, "_SHARD", 2 * images[0].nbytes)  # several files
    prepare.prepare(name, prepare.Config((name,), out=tmp_path, form="tfrecord"))
    same(data.load(name, tmp_path), load(name))


@needs_tfds
@by_tfds
def test_tensorflow_datasets_reads_the_digits(tmp_path):
    import tensorflow_datasets as tfds

    digits = first(data.load("digits_forms"), 100, 0)
    folder, _ = tfds_folder.write(prepare.table("digits_forms", digits, None), tmp_path, "array_record")
    builder = tfds.builder_from_directory(str(folder))
    read = [builder.as_data_source("train")[i] for i in range(0, 100, 9)]
    np.testing.assert_array_equal([r["image"] for r in read], digits.images[::9])
    assert [r["label"] for r in read] == digits.labels[::9].tolist()
    assert [r["client_id"] for r in read] == digits.client_ids[::9].tolist()
    assert builder.info.features["client_id"].names[0] == "form 0" and "tensorflow" not in sys.modules


def fashion_both_ways(source, root):
    """Written, then read by name with either package."""
    import tensorflow_datasets as tfds

    folder, _ = tfds_folder.write(prepare.table("fashion_mnist", source, None), root, "array_record")
    same(data.load("fashion_mnist", root), source)
    assert data.load("fashion_mnist", root).prepare == source.prepare
    there = tfds.data_source("fashion_mnist", data_dir=str(root), download=False)  # its own version of the set
    directly = tfds.builder_from_directory(str(folder)).as_data_source()
    for sources in (there, directly):
        examples = [sources[part][i] for part in ("train", "test") for i in range(len(sources[part]))]
        np.testing.assert_array_equal([e["image"] for e in examples], source.images)
        assert [e["label"] for e in examples] == source.labels.tolist()


@needs_fashion
@needs_tfds
@by_tfds
def test_fashion_mnist_is_identical_by_either_way(tmp_path):
    fashion_both_ways(first(data.load("fashion_mnist"), 60, 20), tmp_path)


@pytest.mark.slow
@needs_fashion
@needs_tfds
@by_tfds
def test_all_of_fashion_mnist_is_identical_by_either_way(tmp_path):
    fashion_both_ways(data.load("fashion_mnist"), tmp_path)


def test_what_cannot_be_prepared_says_why(tmp_path):
    with pytest.raises(ValueError, match="unknown data set 'fashion', did you mean 'fashion_mnist'"):
        prepare.main(prepare.Config(("fashion",), out=tmp_path))
    with pytest.raises(data.DatasetNotFound, match="cifar-10-binary"):
        prepare.main(prepare.Config(("cifar10",), data_dir=tmp_path, out=tmp_path))
    table = prepare.table("digits_forms", data.load("digits_forms"), None)
    with pytest.raises(ValueError, match=r"images must be \[N, height, width, 1 or 3\], got \[1797, 8, 8, 2\]"):
        tfds_folder.write(table._replace(images=np.repeat(table.images, 2, -1)), tmp_path)
