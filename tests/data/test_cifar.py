"""CIFAR in its four forms, tiny: the true layout with fewer examples."""

import gzip
import io
import pickle
import tarfile
from dataclasses import replace

import numpy as np
import pytest
from damage import judges, odd, survives

from fedjax_geo.data import DatasetCorrupt, DatasetNotFound, load
from fedjax_geo.data import _cifar as cifar

NAMES10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
FINE = [f"fine{i}" for i in range(100)]
COARSE = [f"coarse{i}" for i in range(20)]
MARKER = "harmful pickle was run"


@pytest.fixture(autouse=True)
def fewer_examples(monkeypatch):
    tiny = {**{f"data_batch_{i}": 10 for i in range(1, 6)}, "test_batch": 10}
    monkeypatch.setattr(cifar, "CIFAR10", replace(cifar.CIFAR10, examples=tiny))
    hundred = {k: replace(v, examples={"train": 200, "test": 100}) for k, v in cifar.CIFAR100.items()}
    monkeypatch.setattr(cifar, "CIFAR100", hundred)


def pictures(n, seed):
    """uint8 [n, 3, 32, 32] planes and the same as [n, 32, 32, 3]."""
    planes = np.random.default_rng(seed).integers(0, 256, (n, 3, 32, 32)).astype(np.uint8)
    return planes, np.moveaxis(planes, 1, -1)


class Python2(pickle._Pickler):
    """Writes strings as Python 2 did."""

    def save_string(self, value):
        value = value.encode() if isinstance(value, str) else value
        short = len(value) < 256
        self.write(pickle.SHORT_BINSTRING if short else pickle.BINSTRING)
        self.write(len(value).to_bytes(1 if short else 4, "little") + value)
        self.memoize(value)

    dispatch = pickle._Pickler.dispatch | {bytes: save_string, str: save_string}


def python2(value):
    file = io.BytesIO()
    Python2(file, 2).dump(value)
    return file.getvalue().replace(b"cnumpy._core.multiarray", b"cnumpy.core.multiarray")


def files10(form):
    for seed, name in enumerate(cifar.CIFAR10.examples):
        planes, _ = pictures(10, seed)
        labels = np.roll(np.arange(10), seed)
        if form == "binary":
            records = np.concatenate([labels[:, None].astype(np.uint8), planes.reshape(10, -1)], 1)
            yield f"{name}.bin", records.tobytes()
        else:
            batch = {b"data": planes.reshape(10, -1), b"labels": labels.tolist(), b"batch_label": name.encode()}
            batch[b"filenames"] = [b"somewhere.png"] * 10
            yield name, python2(batch)
    if form == "binary":
        yield "batches.meta.txt", ("\n".join(NAMES10) + "\n\n").encode()
    else:
        meta = {b"label_names": [name.encode() for name in NAMES10], b"num_vis": 3072}
        yield "batches.meta", python2(meta)


def files100(form):
    for seed, (name, n) in enumerate({"train": 200, "test": 100}.items()):
        planes, _ = pictures(n, seed)
        fine = np.roll(np.arange(n) % 100, seed)
        coarse = fine // 5
        if form == "binary":
            records = np.concatenate([np.stack([coarse, fine], 1).astype(np.uint8), planes.reshape(n, -1)], 1)
            yield f"{name}.bin", records.tobytes()
        else:
            batch = {b"data": planes.reshape(n, -1), b"fine_labels": fine.tolist()}
            yield name, python2(batch | {b"coarse_labels": coarse.tolist()})
    if form == "binary":
        yield "fine_label_names.txt", "\n".join(FINE).encode()
        yield "coarse_label_names.txt", "\n".join(COARSE).encode()
    else:
        yield "meta", python2({b"fine_label_names": FINE, b"coarse_label_names": COARSE})


def write(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files:
        (folder / name).write_bytes(content)
    return folder


def pack(path, files, inside):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in files:
            info = tarfile.TarInfo(f"{inside}/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def put10(folder, form):
    kind, _, archived = form.partition(" ")
    inside = {"binary": "cifar-10-batches-bin", "python": "cifar-10-batches-py"}[kind]
    if archived:
        pack(folder / f"cifar-10-{kind}.tar.gz", files10(kind), inside)
        return folder
    return write(folder / inside, files10(kind))


FORMS = ["binary", "binary archive", "python", "python archive"]


@pytest.mark.parametrize("form", FORMS)
def test_cifar10_in_every_form(tmp_path, form):
    put10(tmp_path / "here" / "cifar10", form)
    source = load("cifar10", data_dir=tmp_path / "here")
    assert source.images.shape == (60, 32, 32, 3) and source.num_train == 50
    np.testing.assert_array_equal(source.images, np.concatenate([pictures(10, i)[1] for i in range(6)]))
    np.testing.assert_array_equal(source.labels[10:20], np.roll(np.arange(10), 1))
    assert source.class_names == tuple(NAMES10)
    assert str(tmp_path / "here") in source.provenance and form.split()[0] in source.provenance
    assert source.images.dtype == np.uint8 and source.labels.dtype == np.int32


@pytest.mark.parametrize("form", ["binary", "python"])
def test_cifar100_fine_and_coarse(tmp_path, form):
    write(tmp_path / f"cifar-100-{form}", files100(form))
    fine, coarse = load("cifar100", data_dir=tmp_path), load("cifar100_coarse", data_dir=tmp_path)
    assert fine.class_names == tuple(FINE) and coarse.class_names == tuple(COARSE)
    np.testing.assert_array_equal(fine.labels // 5, coarse.labels)
    np.testing.assert_array_equal(fine.images[:200], pictures(200, 0)[1])
    assert coarse.provenance.startswith("cifar100_coarse: ") and fine.provenance.startswith("cifar100: ")


def test_binary_is_preferred(tmp_path):
    for form in reversed(FORMS):
        put10(tmp_path, form)
        assert form.split()[0] in load("cifar10", data_dir=tmp_path).provenance


def test_archives_are_not_unpacked(tmp_path):
    folder = put10(tmp_path / "here", "binary archive")
    load("cifar10", data_dir=folder)
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["cifar-10-binary.tar.gz"]


def test_missing_files_are_named(tmp_path):
    folder = put10(tmp_path, "binary")
    (folder / "data_batch_3.bin").unlink()
    with pytest.raises(DatasetNotFound) as caught:
        load("cifar10", data_dir=tmp_path)
    for part in (
        "data_batch_3.bin",
        "cifar-10-python.tar.gz",
        str(tmp_path),
        "kriz/cifar.html",
        "FEDJAX_GEO_DATA",
    ):
        assert part in str(caught.value)


def test_damaged_binaries(tmp_path):
    folder = put10(tmp_path, "binary")
    file = folder / "data_batch_2.bin"
    good = file.read_bytes()
    for content, reason in [
        (good[:-1], "30729 bytes, expected exactly 30730"),
        (good + b"\0", "30731 bytes"),
        (bytes(10_000_000), "more than the"),
        (b"\x0a" + good[1:], r"\[0, 10\), got 0 to 10"),
        (b"\x01" + good[1:], "6 examples of class 1, expected 5 of each|4 examples of class 9"),
    ]:
        file.write_bytes(content)
        with pytest.raises(DatasetCorrupt, match=reason):
            load("cifar10", data_dir=tmp_path)
    file.write_bytes(good)
    (folder / "batches.meta.txt").write_bytes("\n".join(NAMES10[:9]).encode())
    with pytest.raises(DatasetCorrupt, match=r"batches\.meta\.txt: expected 10 different names, got 9"):
        load("cifar10", data_dir=tmp_path)


def member(name, content=b"", **facts):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in facts.items():
        setattr(info, key, value)
    return info.tobuf(tarfile.GNU_FORMAT) + content + b"\0" * (-len(content) % 512)


def test_harmful_archives(tmp_path):
    path = tmp_path / "cifar-10-binary.tar.gz"
    inside = "cifar-10-batches-bin/data_batch_1.bin"
    for content, reason in [
        (member(inside, size=1 << 40), f"claims {1 << 40} bytes"),
        (member(inside, type=tarfile.SYMTYPE, linkname="/etc/passwd"), "no plain file"),
        (member("bomb", size=1 << 40) + member("next"), "cannot be read"),
        (member("x", type=tarfile.XHDTYPE, size=1 << 33), "a block of"),
        (member("x", type=tarfile.GNUTYPE_LONGNAME, size=1 << 33), "a block of"),
        (member("other", b"nothing"), r"lacks data_batch_1\.bin"),
    ]:
        path.write_bytes(gzip.compress(content + bytes(1024)))
        with pytest.raises(DatasetCorrupt, match=reason):
            load("cifar10", data_dir=tmp_path)
    packed = pack(path, files10("binary"), "x").read_bytes()
    for content in (packed[: len(packed) // 2], packed[:-4000], b"no archive", b""):
        path.write_bytes(content)
        with pytest.raises(DatasetCorrupt, match=r"cifar-10-binary\.tar\.gz"):
            load("cifar10", data_dir=tmp_path)


class Harm:
    def __reduce__(self):
        return exec, (f"raise SystemExit({MARKER!r})",)


class Reduced:
    """Pickles to a call of the given function."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "value",
    [
        Harm(),
        {b"data": Harm()},
        {b"data": Reduced(np.zeros, (10**12,))},
        {b"data": Reduced(np.ndarray, ((10**12,),))},
        {b"data": Reduced(print, (MARKER,))},
        {b"data": np.array([Harm()], dtype=object)},
        [1, 2],
        {b"data": b"x", b"labels": [0] * 10},
        {b"data": np.zeros((10, 3072), np.float32), b"labels": [0] * 10},
        {b"data": np.zeros((11, 3072), np.uint8), b"labels": [0] * 10},
        {b"data": np.zeros((10, 3072), np.uint8), b"labels": [0] * 9},
        {b"data": np.zeros((10, 3072), np.uint8), b"labels": [10**30] * 10},
        {b"data": np.zeros((10, 3072), np.uint8), b"labels": ["0"] * 10},
    ],
    ids=[f"value{i}" for i in range(13)],
)
def test_harmful_and_wrong_pickles_are_refused(tmp_path, capsys, value, protocol):
    folder = put10(tmp_path, "python")
    (folder / "data_batch_1").write_bytes(pickle.dumps(value, protocol))
    with pytest.raises(DatasetCorrupt, match="data_batch_1"):
        load("cifar10", data_dir=tmp_path)
    assert MARKER not in capsys.readouterr().out


@pytest.mark.parametrize(
    "content",
    [
        b"cos\nsystem\n(S'echo harm'\ntR.",
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nM\xff\xff\x85U\x01b\x87R.",
        b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b".",  # a byte array of a terabyte
        b"\x80\x04\x8e" + (1 << 40).to_bytes(8, "little") + b".",
        b"\x80\x04}r\xff\xff\xff\xff.",  # the four billionth memory
        b"(" * 100_000 + b".",
        b"\x80\x02]" + b"q\x00h\x00a" * 1000 + b".",
        b"",
    ],
)
def test_handmade_pickles_are_refused(tmp_path, content):
    folder = put10(tmp_path, "python")
    (folder / "data_batch_1").write_bytes(content)
    with pytest.raises(DatasetCorrupt, match="data_batch_1"):
        load("cifar10", data_dir=tmp_path)


@pytest.mark.parametrize("protocol", range(2, 5))
def test_pickles_of_later_protocols_are_read(tmp_path, protocol):
    folder = put10(tmp_path, "python")
    for file in folder.iterdir():
        file.write_bytes(pickle.dumps(pickle.loads(file.read_bytes(), encoding="bytes"), protocol))
    np.testing.assert_array_equal(load("cifar10", data_dir=tmp_path).images[:10], pictures(10, 0)[1])


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_random_damage(tmp_path, form):
    put10(tmp_path, form)
    assert survives(lambda: load("cifar10", data_dir=tmp_path), tmp_path) > 500


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_odd_pickles(tmp_path):
    rng, noticed = np.random.default_rng(0), 0
    folder = put10(tmp_path, "python")
    for _ in range(1000):
        planes, _ = pictures(10, 0)
        data, labels = planes.reshape(10, -1), np.arange(10)
        data, labels = (odd(data, rng), labels) if rng.random() < 0.5 else (data, odd(labels, rng))
        stored = {b"data": data, b"labels": labels.tolist() if rng.random() < 0.8 else labels}
        (folder / "data_batch_1").write_bytes(pickle.dumps(stored, int(rng.integers(2, 6))))
        noticed += judges(lambda: load("cifar10", data_dir=tmp_path))
    assert noticed > 500
