"""FEMNIST in four forms, tiny: the same characters out of each, ink bright."""

import io
import json
import sqlite3
import zlib

import numpy as np
import pytest
from damage import judges, odd, survives

from fedjax_geo.data import DatasetCorrupt, DatasetNotFound, assemble, load, split_writers, writers

h5py = pytest.importorskip("h5py")
msgpack = pytest.importorskip("msgpack")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
Image = pytest.importorskip("PIL.Image")

WRITERS = {"f0000_14": (3, 2), "f2101_03": (1, 1), "f1000_45": (4, 1)}  # training and test examples


def ink(writer, part, n):
    """uint8 [n, 28, 28], ink 255 on paper 0, and labels [n]."""
    seed = list(WRITERS).index(writer) * 2 + part
    rng = np.random.default_rng(seed)
    pictures = np.zeros((n, 28, 28), np.uint8)
    pictures[:, 8:20, 8:20] = rng.integers(0, 256, (n, 12, 12))
    return pictures, rng.integers(0, 10, n)


def parts():
    """For training and test: writer, ink and labels."""
    return [[(w, *ink(w, part, counts[part])) for w, counts in WRITERS.items()] for part in (0, 1)]


def put_leaf(folder, **changes):
    for part, users in zip(("train", "test"), parts(), strict=True):
        (folder / part).mkdir(parents=True, exist_ok=True)
        for i, chosen in enumerate((users[:2], users[2:])):
            content = {
                "users": [w for w, _, _ in chosen],
                "num_samples": [len(y) for _, _, y in chosen],
                "user_data": {
                    w: {"x": (1 - x.reshape(len(x), 784) / 255).tolist(), "y": y.tolist()} for w, x, y in chosen
                },
            }
            if part == "train" and i == 0:
                content |= changes
            (folder / part / f"all_data_{i}_niid_0_keep_0_{part}_9.json").write_text(json.dumps(content))


def put_tff(folder, suffix="", inverted=True):
    folder.mkdir(parents=True, exist_ok=True)
    for part, users in zip(("train", "test"), parts(), strict=True):
        with h5py.File(folder / f"fed_emnist{suffix}_{part}.h5", "w") as file:
            for w, x, y in users:
                values = x / np.float32(255)
                pixels = (1 - values if inverted else values).astype(np.float32)
                file.create_dataset(f"examples/{w}/pixels", data=pixels)
                file.create_dataset(f"examples/{w}/label", data=y.astype(np.int32))


def packed_array(array):
    content = msgpack.packb((array.shape, array.dtype.name, array.tobytes()), use_bin_type=True)
    return msgpack.ExtType(1, content)


def put_fedjax(folder, suffix="", rows=None):
    folder.mkdir(parents=True, exist_ok=True)
    for part, users in zip(("train", "test"), parts(), strict=True):
        path = folder / f"federated_emnist{suffix}_{part}.sqlite"
        path.unlink(missing_ok=True)
        base = sqlite3.connect(path)
        base.execute(
            "CREATE TABLE federated_data (client_id BLOB NOT NULL PRIMARY KEY, data BLOB NOT NULL,"
            " num_examples INTEGER NOT NULL)"
        )
        for w, x, y in users:
            client = {
                "pixels": packed_array((1 - x / np.float32(255)).astype(np.float32)),
                "label": packed_array(y.astype(np.int32)),
            }
            data = zlib.compress(msgpack.packb(client, use_bin_type=True))
            if rows is not None and part == "train":
                data = rows(client)
            base.execute("INSERT INTO federated_data VALUES (?, ?, ?)", (f"{w:0>20}".encode(), data, len(y)))
        base.commit()
        base.close()


def png(picture):
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return file.getvalue()


def put_parquet(folder, changes=None):
    (folder / "data").mkdir(parents=True, exist_ok=True)
    rows = [
        {"image": {"bytes": png(255 - x[i]), "path": None}, "writer_id": w, "hsf_id": 0, "character": int(y[i])}
        for users in parts()
        for w, x, y in users
        for i in range(len(y))
    ]
    rows[0] |= changes or {}
    table = pa.Table.from_pylist(rows)
    for k in range(2):
        piece = table.slice(k * 6, 6)
        parquet.write_table(piece, folder / "data" / f"train-0000{k}-of-00002.parquet", write_page_checksum=True)


FORMS = {"leaf": put_leaf, "tff": put_tff, "fedjax": put_fedjax, "parquet": put_parquet}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_characters(tmp_path, form):
    FORMS[form](tmp_path / "here")
    source = load(f"femnist_{form}", data_dir=tmp_path / "here")
    assert source.images.shape == (12, 28, 28, 1) and source.images.dtype == np.uint8
    assert source.num_train == (12 if form == "parquet" else 8)
    assert source.num_classes == 62 and source.class_names[10] == "A" and source.class_names[36] == "a"
    assert "ink = 1 (inverted)" in source.provenance
    for writer, counts in WRITERS.items():
        name = f"{writer:0>20}" if form == "fedjax" else writer
        mine = source.client_ids == source.client_names.index(name)
        assert mine.sum() == sum(counts)
        expected = [ink(writer, part, counts[part]) for part in (0, 1)]
        np.testing.assert_array_equal(source.images[mine][..., 0], np.concatenate([x for x, _ in expected]))
        np.testing.assert_array_equal(source.labels[mine], np.concatenate([y for _, y in expected]))


def test_what_is_bright_already_stays(tmp_path):
    put_tff(tmp_path / "a", inverted=True)
    put_tff(tmp_path / "b", inverted=False)
    a, b = (load("femnist_tff", data_dir=tmp_path / folder) for folder in "ab")
    np.testing.assert_array_equal(a.images, b.images)
    assert "as stored" in b.provenance


@pytest.mark.parametrize("put", [put_tff, put_fedjax])
def test_digits_only(tmp_path, put):
    put(tmp_path, "_digitsonly")
    assert load(f"femnist_{put.__name__[4:]}_digits", data_dir=tmp_path).class_names == tuple("0123456789")


@pytest.mark.parametrize("form", FORMS)
def test_missing(tmp_path, form):
    wanted = {"leaf": "train/*.json", "tff": "_train.h5", "fedjax": "_test.sqlite", "parquet": "train-*.parquet"}
    with pytest.raises(DatasetNotFound, match="FEDJAX_GEO_DATA") as caught:
        load(f"femnist_{form}", data_dir=tmp_path / "nowhere")
    assert wanted[form] in str(caught.value) and "nowhere" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"users": ["f0000_14"]}, "not equally many"),
        ({"num_samples": [4, 1]}, "expected 4 of both"),
        ({"num_samples": [1e300, 1]}, "expected 1e"),
        ({"users": ["f0000_14", "nobody"]}, "KeyError"),
        ({"user_data": [1, 2]}, "cannot be read"),
        ({"user_data": {"f0000_14": {"x": [[0.5] * 784] * 3, "y": [0, 1, 62]}}, "users": ["f0000_14"]}, "equally"),
        (
            {"user_data": {"f": {"x": [[1.5] * 784], "y": [0]}}, "users": ["f"], "num_samples": [1]},
            r"must be in \[0, 1\]",
        ),
        (
            {"user_data": {"f": {"x": [[float("nan")] * 784], "y": [0]}}, "users": ["f"], "num_samples": [1]},
            r"must be in \[0, 1\]",
        ),
        (
            {"user_data": {"f": {"x": [[1] * 784], "y": [62]}}, "users": ["f"], "num_samples": [1]},
            r"\[0, 62\), got \d to 62",
        ),
        (
            {"user_data": {"f": {"x": [[1] * 784], "y": [0.5]}}, "users": ["f"], "num_samples": [1]},
            "expected 1 of both",
        ),
    ],
)
def test_wrong_leaf(tmp_path, changes, reason):
    put_leaf(tmp_path, **changes)
    with pytest.raises(DatasetCorrupt, match=reason):
        load("femnist_leaf", data_dir=tmp_path)


def test_truncated_and_nested_leaf(tmp_path):
    put_leaf(tmp_path)
    file = next((tmp_path / "train").iterdir())
    for content in (file.read_text()[:-10], "[" * 100_000, "", "3"):
        file.write_text(content)
        with pytest.raises(DatasetCorrupt, match=file.name):
            load("femnist_leaf", data_dir=tmp_path)


@pytest.mark.parametrize("name", ["pixels", "label"])
def test_wrong_tff(tmp_path, name):
    put_tff(tmp_path)
    path = tmp_path / "fed_emnist_train.h5"
    for value in (
        {"data": np.zeros((3, 27, 28))},
        {"data": "text"},
        {"shape": (1 << 40,), "chunks": (1 << 20,), "dtype": "f4"},
    ):
        with h5py.File(path, "a") as file:
            del file[f"examples/f0000_14/{name}"]
            file.create_dataset(f"examples/f0000_14/{name}", **value)
        with pytest.raises(DatasetCorrupt, match="f0000_14"):
            load("femnist_tff", data_dir=tmp_path)
    with h5py.File(path, "a") as file:
        del file[f"examples/f0000_14/{name}"]
        file[f"examples/f0000_14/{name}"] = h5py.ExternalLink("/etc/passwd", "/")
    with pytest.raises(DatasetCorrupt, match="is missing or a link"):
        load("femnist_tff", data_dir=tmp_path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DatasetCorrupt, match=r"fed_emnist_train\.h5: cannot be read"):
        load("femnist_tff", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (lambda client: b"no zlib", "cannot be read"),
        (lambda client: zlib.compress(b""), "cannot be read"),
        (lambda client: zlib.compress(msgpack.packb(client))[:-9], "truncated"),
        (lambda client: zlib.compress(bytes(1 << 27), 1), "more than 67108864 bytes"),
        (lambda client: zlib.compress(msgpack.packb({"pixels": client["pixels"]})), "KeyError"),
        (lambda client: zlib.compress(msgpack.packb(client | {"label": client["pixels"]})), "labels"),
        (
            lambda client: zlib.compress(
                msgpack.packb(client | {"label": msgpack.ExtType(1, msgpack.packb(((1 << 40,), "int32", b"")))})
            ),
            "in 0 bytes",
        ),
        (
            lambda client: zlib.compress(
                msgpack.packb(client | {"label": msgpack.ExtType(1, msgpack.packb(((1,), "object", bytes(8))))})
            ),
            "object",
        ),
        (
            lambda client: zlib.compress(msgpack.packb(client | {"label": msgpack.ExtType(5, b"x")})),
            "cannot be read",
        ),
    ],
)
def test_wrong_fedjax(tmp_path, rows, reason):
    put_fedjax(tmp_path, rows=rows)
    with pytest.raises(DatasetCorrupt, match=reason):
        load("femnist_fedjax", data_dir=tmp_path)


def test_a_table_that_is_none(tmp_path):
    put_fedjax(tmp_path)
    path = tmp_path / "federated_emnist_train.sqlite"
    base = sqlite3.connect(path)
    base.execute("DROP TABLE federated_data")
    base.execute(
        "CREATE VIEW federated_data AS WITH RECURSIVE f(client_id, data, rowid) AS"
        " (SELECT 1, x'00', 1 UNION ALL SELECT client_id + 1, data, 1 FROM f) SELECT * FROM f"
    )
    base.commit()
    base.close()
    with pytest.raises(DatasetCorrupt, match="no table federated_data"):
        load("femnist_fedjax", data_dir=tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"character": 62},
        {"character": -1},
        {"image": {"bytes": b"no image", "path": None}},
        {"image": {"bytes": png(np.zeros((28, 27), np.uint8)), "path": None}},
        {"writer_id": None},
    ],
    ids=str,
)
def test_wrong_parquet(tmp_path, changes):
    put_parquet(tmp_path, changes)
    with pytest.raises(DatasetCorrupt, match=str(tmp_path)):
        load("femnist_parquet", data_dir=tmp_path)


def test_parquet_with_other_columns(tmp_path):
    put_parquet(tmp_path)
    file = next((tmp_path / "data").iterdir())
    parquet.write_table(pa.table({"image": [1], "label": [2]}), file)
    with pytest.raises(DatasetCorrupt, match="train-0000"):
        load("femnist_parquet", data_dir=tmp_path)


# choosing writers


def test_writers_are_drawn_as_by_the_authors(tmp_path):
    put_parquet(tmp_path)
    source = load("femnist_parquet", data_dir=tmp_path)
    chosen = writers(source, 2, seed=77, min_examples=3)
    fitting = ["f0000_14", "f1000_45"]
    expected = np.random.default_rng(77).choice(fitting, 2, replace=False)
    assert chosen.client_names == tuple(expected)
    np.testing.assert_array_equal(np.bincount(chosen.client_ids), [5, 5])
    for i, name in enumerate(expected):
        mine = source.client_ids == source.client_names.index(name)
        np.testing.assert_array_equal(chosen.images[chosen.client_ids == i], source.images[mine])

    rng = np.random.default_rng(77)
    for i, (train, test) in enumerate(zip(*split_writers(chosen.client_ids, seed=77)[:2], strict=True)):
        positions = np.flatnonzero(chosen.client_ids == i)
        rng.shuffle(positions)
        np.testing.assert_array_equal(train, positions[:4])
        np.testing.assert_array_equal(test, positions[4:])
    data = assemble(chosen, split_writers(chosen.client_ids, seed=77), client_names=chosen.client_names)
    assert data.train.sizes.tolist() == [4, 4] and data.client_names == tuple(expected)


def test_too_few_writers():
    source = load("digits_forms")
    with pytest.warns(UserWarning, match="only 2 clients have 0 to 123 examples"):
        assert len(writers(source, 5, seed=0, max_examples=123).client_names) == 2
    with pytest.raises(ValueError, match="no client has 0 to 3 examples"):
        writers(source, 5, seed=0, max_examples=3)
    with pytest.raises(ValueError, match="num must be at least 1, got 0"):
        writers(source, 0, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_random_damage(tmp_path, form):
    FORMS[form](tmp_path / "here")
    assert survives(lambda: load(f"femnist_{form}", data_dir=tmp_path / "here"), tmp_path / "here") > 100


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize("form", ["leaf", "tff", "fedjax"])
def test_odd_arrays(tmp_path, form):
    rng, noticed = np.random.default_rng(0), 0
    put = FORMS[form]
    for case in range(1000):
        folder = tmp_path / str(case)
        x, y = ink("f0000_14", 0, 3)
        x = (1 - x / np.float32(255)).astype(np.float32)
        x, y = (odd(x, rng), y) if rng.random() < 0.5 else (x, odd(y, rng))
        if form == "leaf":
            user = {"x": x.reshape(len(x), -1).tolist() if x.ndim and len(x) else x.tolist(), "y": y.tolist()}
            put(folder, users=["w"], num_samples=[3], user_data={"w": user})
        elif form == "tff":
            put(folder)
            with h5py.File(folder / "fed_emnist_train.h5", "a") as file:
                for name, value in (("pixels", x), ("label", y)):
                    del file[f"examples/f0000_14/{name}"]
                    file[f"examples/f0000_14/{name}"] = value
        else:
            client = {"pixels": packed_array(x), "label": packed_array(y)}
            put(folder, rows=lambda _, client=client: zlib.compress(msgpack.packb(client)))
        noticed += judges(lambda folder=folder: load(f"femnist_{form}", data_dir=folder))
    assert noticed > 300
