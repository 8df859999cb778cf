"""Folders prepared by tensorflow-datasets, written by hand and by itself, and asking it without a network."""

import io
import json
import socket
import struct
import sys
import threading
import time

import numpy as np
import pytest
from damage import damaged, judges, survives

from fedjax_geo.data import DatasetCorrupt, DatasetNotFound, load
from fedjax_geo.data import _tfds as tfds_module
from fedjax_geo.data._prepared import TFDS
from fedjax_geo.data._tfrecord import masked_crc, parse_example, read_tfrecord

Image = pytest.importorskip("PIL.Image")


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def example(packed=True, **features):
    entries = b""
    for name, value in features.items():
        if isinstance(value, bytes):
            feature = field(1, field(1, value))
        elif isinstance(value, float):
            feature = field(2, field(1, struct.pack("<f", value)))
        else:
            feature = field(3, field(1, varint(value)) if packed else varint(1 << 3) + varint(value))
        entries += field(1, field(1, name.encode()) + field(2, feature))
    return field(1, entries)


def framed(*records):
    out = b""
    for record in records:
        length = struct.pack("<Q", len(record))
        out += length + struct.pack("<I", masked_crc(length)) + record + struct.pack("<I", masked_crc(record))
    return out


def picture(shape, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels.squeeze()).save(file, "PNG")
    return pixels, file.getvalue()


def put(root, name, sizes=((3, 2), (2,), (1, 1)), version="3.0.2", labels=None):
    """A prepared folder, and the images in it."""
    facts = TFDS[name]
    folder = root / facts.builder / version
    folder.mkdir(parents=True)
    images, splits, k = [], [], 0
    for part, shards in zip(facts.parts, sizes, strict=False):
        splits.append({"name": part, "shardLengths": [str(n) for n in shards], "numBytes": "1"})
        for i, n in enumerate(shards):
            records = []
            for _ in range(n):
                pixels, png = picture(facts.shape, k)
                images.append(pixels)
                label = facts.first_label + k % 5 if labels is None else labels[k]
                records.append(example(packed=k % 2 == 0, id=b"x", image=png, **{facts.label: label}))
                k += 1
            stem = facts.builder.split("/")[0]
            (folder / f"{stem}-{part}.tfrecord-{i:05}-of-{len(shards):05}").write_bytes(framed(*records))
    if isinstance(facts.classes, int):
        names = "\n".join(f"name{i}" for i in range(facts.classes))
        (folder / f"{facts.label}.labels.txt").write_text(names + "\n")
    (folder / "dataset_info.json").write_text(
        json.dumps({"name": name, "fileFormat": "tfrecord", "splits": splits, "version": version})
    )
    return folder, np.array(images)


def test_crc_of_known_content():
    assert masked_crc(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_records_and_examples(tmp_path):
    path = tmp_path / "x.tfrecord"
    first = example(label=-3, image=b"abc", weight=0.5, other=1 << 40)
    path.write_bytes(framed(first, b"", example(packed=False, label=7)))
    records = list(read_tfrecord(path))
    assert [len(record) for record in records] == [len(first), 0, len(records[2])]
    assert parse_example(path, records[0]) == {"label": [-3], "image": [b"abc"], "other": [1 << 40]}
    assert parse_example(path, records[1]) == {} and parse_example(path, records[2]) == {"label": [7]}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (framed(b"abc")[:-5], "beyond the end"),
        (framed(b"abc")[:7], "damaged length"),
        (b"\xff" * 12, "damaged length"),
        (struct.pack("<QI", 1 << 60, masked_crc(struct.pack("<Q", 1 << 60))), f"a record of {1 << 60} bytes"),
    ],
)
def test_wrong_records(tmp_path, content, reason):
    path = tmp_path / "x.tfrecord"
    path.write_bytes(content)
    with pytest.raises(DatasetCorrupt, match=rf"x\.tfrecord: .*{reason}"):
        list(read_tfrecord(path))


@pytest.mark.parametrize(
    "content", [b"\x0a\xff", b"\x0a", b"\x08" + b"\xff" * 11, b"\x0b", b"\x08\x01", b"\x09abc"]
)
def test_wrong_examples(content):
    with pytest.raises(DatasetCorrupt, match="here: cannot be read"):
        parse_example("here", content)


@pytest.mark.parametrize("name", TFDS)
def test_prepared_folders_are_read_without_tensorflow(tmp_path, name):
    folder, images = put(tmp_path / "prepared", name)
    if name == "pneumoniamnist":
        with pytest.raises(DatasetCorrupt, match=r"labels must be in \[0, 2\), got 0 to 4"):
            load(name, tmp_path / "prepared")
        return
    source = load(name, tmp_path / "prepared")
    expected = images.transpose(0, 2, 1, 3) if name.startswith("emnist") else images
    np.testing.assert_array_equal(source.images, expected)
    assert source.labels.tolist() == [k % 5 for k in range(7)] and source.num_train == 5
    assert str(folder) in source.provenance and "tensorflow" not in sys.modules


def test_validation_counts_as_training(tmp_path):
    put(tmp_path, "pneumoniamnist", labels=[0, 1] * 5)
    source = load("pneumoniamnist", tmp_path)
    assert source.num_train == 7 and len(source) == 9


def test_the_latest_version_in_the_usual_place(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    put(tmp_path / "tfds", "cifar10", version="3.0.2")
    put(tmp_path / "tfds", "cifar10", version="3.0.10")
    assert "3.0.10" in load("cifar10").provenance
    monkeypatch.delenv("TFDS_DATA_DIR")
    put(tmp_path / "home" / "tensorflow_datasets", "mnist")
    assert "tensorflow_datasets" in load("mnist").provenance


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda info: info["splits"][0].update(shardLengths=["3", "3"]), "5 examples in train, expected 6"),
        (lambda info: info["splits"][0].update(shardLengths=["5"]), "2 files .*expected 1"),
        (lambda info: info["splits"].pop(), "no part 'test'"),
        (lambda info: info.update(fileFormat="riegeli"), "format 'riegeli'"),
        (lambda info: info.update(splits=3), "cannot be read"),
    ],
)
def test_wrong_prepared_folders(tmp_path, change, reason):
    folder, _ = put(tmp_path, "mnist")
    path = folder / "dataset_info.json"
    info = json.loads(path.read_text())
    change(info)
    path.write_text(json.dumps(info))
    with pytest.raises(DatasetCorrupt, match=reason):
        load("mnist", tmp_path)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (example(label=1), "without one image"),
        (example(image=picture((28, 28), 0)[1]), "without one image and one label"),
        (example(image=3, label=1), "without one image"),
        (example(image=b"no image", label=1), "cannot be read"),
        (example(image=picture((28, 27), 0)[1], label=1), "28x27 pixels"),
        (example(image=picture((28, 28), 0)[1], label=10), r"\[0, 10\), got"),
    ],
)
def test_wrong_records_of_a_set(tmp_path, record, reason):
    folder, _ = put(tmp_path, "mnist", sizes=((1,), (1,)))
    (folder / "mnist-train.tfrecord-00000-of-00001").write_bytes(framed(record))
    with pytest.raises(DatasetCorrupt, match=reason):
        load("mnist", tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_a_folder_written_by_tensorflow_datasets(tmp_path):
    """The true form of array_record, through a builder that needs no TensorFlow."""
    tfds = pytest.importorskip("tensorflow_datasets")
    pytest.importorskip("array_record")
    tfds.disable_progress_bar()
    pixels = [picture((28, 28, 1), k)[0] for k in range(7)]

    class Mnist(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("3.0.1")
        name = "mnist"
        pkg_dir_path = tmp_path

        def _info(self):
            features = {
                "image": tfds.features.Image(shape=(28, 28, 1)),
                "label": tfds.features.ClassLabel(num_classes=10),
            }
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, manager):
            return {"train": self._examples(range(5)), "test": self._examples(range(5, 7))}

        def _generate_examples(self):
            return ()

        def _examples(self, numbers):
            for k in numbers:
                yield k, {"image": Image.fromarray(pixels[k][..., 0]), "label": k}

    builder = Mnist(data_dir=str(tmp_path / "prepared"), file_format="array_record")
    builder.download_and_prepare()
    source = load("mnist", tmp_path / "prepared")
    assert source.num_train == 5 and sorted(source.labels.tolist()) == list(range(7))
    for image, label in zip(source.images, source.labels, strict=True):
        np.testing.assert_array_equal(image, pixels[label])
    assert "tensorflow" not in sys.modules


# downloading


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise OSError("no network in this test")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["cifar10", "emnist_letters", "pneumoniamnist"])
def test_no_network_is_told_at_once(tmp_path, no_network, name):
    pytest.importorskip("tensorflow_datasets")
    start = time.perf_counter()
    with pytest.raises(DatasetNotFound, match=r"cannot be reached within 6 seconds.*looked for"):
        load(name, tmp_path, download=True)
    assert time.perf_counter() - start < 5


def test_a_server_that_never_answers():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not tfds_module.reachable(f"http://127.0.0.1:{server.getsockname()[1]}/x", 0.3)


@pytest.mark.parametrize("status", [200, 403, 404])
def test_any_answer_counts(status, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(f"HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n".encode())

        thread = threading.Thread(target=answer)
        thread.start()
        assert tfds_module.reachable(f"http://127.0.0.1:{server.getsockname()[1]}/x", 5)
        thread.join()


def test_names_that_never_resolve(monkeypatch):
    done, given_up = threading.Event(), threading.Event()

    def wait(*_, **__):
        done.wait(600)
        given_up.set()
        raise socket.gaierror("given up")

    monkeypatch.setattr(socket, "getaddrinfo", wait)
    assert not tfds_module.reachable("http://example.invalid/x", 0.2)
    assert not given_up.is_set()
    done.set()


def test_what_cannot_be_downloaded(tmp_path):
    with pytest.raises(DatasetNotFound, match=r"does not have it.*looked for.*tiny-imagenet-200\.zip"):
        load("tiny_imagenet", tmp_path, download=True)


def test_without_the_packages(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match=r"fedjax_geo\[tfds\]"):
        load("cifar10", tmp_path, download=True)


@pytest.mark.filterwarnings("ignore")
def test_without_tensorflow(tmp_path, monkeypatch):
    pytest.importorskip("tensorflow_datasets")
    monkeypatch.setattr(tfds_module, "reachable", lambda url: True)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"fedjax_geo\[tfds-prepare\]"):
        load("cifar10", tmp_path, download=True)


@pytest.mark.filterwarnings("ignore")
def test_downloading_is_left_to_tensorflow_datasets(tmp_path, monkeypatch):
    tfds = pytest.importorskip("tensorflow_datasets")
    monkeypatch.setattr(tfds_module, "reachable", lambda url: "kriz" in url)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    prepare = lambda builder: put(tmp_path, builder.name)  # noqa: E731
    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", prepare)
    assert len(load("cifar10", tmp_path, download=True)) == 7


@pytest.mark.slow
def test_random_damage(tmp_path):
    put(tmp_path / "here", "cifar10")
    assert survives(lambda: load("cifar10", tmp_path / "here"), tmp_path / "here") > 300


@pytest.mark.slow
def test_odd_records(tmp_path):
    """Damage inside well-framed records."""
    folder, _ = put(tmp_path / "here", "mnist")
    path = folder / "mnist-test.tfrecord-00000-of-00001"
    records, rng, noticed = list(read_tfrecord(path)), np.random.default_rng(0), 0
    for _ in range(1000):
        path.write_bytes(framed(damaged(records[0], rng), records[1]))
        noticed += judges(lambda: load("mnist", tmp_path / "here"))
    assert noticed > 500
