"""The two COVID-19 sets, tiny."""

import io

import numpy as np
import pytest
from damage import judges, odd, survives

from fedjax_geo.data import DatasetCorrupt, DatasetNotFound, covid19_radiography, load

COLOURS = np.random.default_rng(0).integers(0, 256, (9, 6, 5, 3)).astype(np.uint8)
LABELS = np.arange(9) % 4


def put_arrays(folder, x=COLOURS, y=LABELS):
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "xdata.npy", x)
    np.save(folder / "ydata.npy", y)
    return folder


def test_bytes_stay_on_disk(tmp_path):
    put_arrays(tmp_path / "covid19" / "raw", y=LABELS[:, None])
    source = load("covid19_cycfed", data_dir=tmp_path)
    np.testing.assert_array_equal(source.images, COLOURS)
    assert source.labels.tolist() == LABELS.tolist() and source.num_train == 9 and source.num_classes == 4
    base = source.images
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert isinstance(base, np.memmap) and not source.images.flags.writeable


@pytest.mark.parametrize(
    ("dtype", "top"), [(np.float32, 1), (np.float64, 255), (np.float32, 255), (np.int32, 255)]
)
def test_other_numbers_are_converted_once(tmp_path, dtype, top):
    put_arrays(tmp_path / "here", (COLOURS / (255 / top)).astype(dtype))
    for _ in range(2):
        source = load("covid19_cycfed", data_dir=tmp_path / "here")
        np.testing.assert_array_equal(source.images, COLOURS)
    assert len(list((tmp_path / "cache").iterdir())) == 1 and "from" in source.provenance


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"x": COLOURS[:8]}, "expected 9 grey or colour images"),
        ({"x": COLOURS[..., :2]}, r"uint8 \(9, 6, 5, 2\)"),
        ({"x": COLOURS.astype(float) * 2}, r"pixels must be in \[0, 1\]"),
        ({"x": COLOURS.astype(float) - 1}, r"pixels must be in \[0, 1\]"),
        ({"x": np.full(COLOURS.shape, np.nan)}, "pixels must be"),
        ({"x": np.full(COLOURS.shape, np.inf)}, "pixels must be"),
        ({"x": np.array([object()] * 9)}, "plain numbers"),
        ({"x": np.asfortranarray(COLOURS)}, "plain numbers by rows"),
        ({"y": LABELS + 1}, r"\[0, 4\), got 1 to 4"),
        ({"y": LABELS.astype(float)}, "whole number"),
        ({"y": np.stack([LABELS, LABELS], 1)}, "one whole number for each"),
        ({"y": np.array(3)}, "one whole number for each"),
    ],
)
def test_wrong_arrays(tmp_path, changes, reason):
    put_arrays(tmp_path, **changes)
    with pytest.raises(DatasetCorrupt, match=reason):
        load("covid19_cycfed", data_dir=tmp_path)


def test_truncated_and_oversized_arrays(tmp_path):
    put_arrays(tmp_path)
    path = tmp_path / "xdata.npy"
    good = path.read_bytes()
    for content in (
        good[:-1],
        good[:20],
        b"",
        good + b"\0",
        good.replace(b"(9, 6,", b"(99999999999999999, 6,", 1),
    ):
        path.write_bytes(content)
        with pytest.raises(DatasetCorrupt, match=r"xdata\.npy"):
            load("covid19_cycfed", data_dir=tmp_path)
    path.unlink()
    with pytest.raises(DatasetNotFound, match=r"xdata\.npy with ydata\.npy.*cycfed.*FEDJAX_GEO_DATA"):
        load("covid19_cycfed", data_dir=tmp_path)


NAMES = ("COVID", "Lung_Opacity", "Normal", "Viral Pneumonia")


def put_xrays(root, level, mode="L"):
    image = pytest.importorskip("PIL.Image")
    for k, name in enumerate(NAMES):
        for sub, tone in ((level, 10 * k), ("masks", 255)):
            (root / name / sub).mkdir(parents=True, exist_ok=True)
            for i in range(2):
                picture = image.new("L", (299, 299), tone + i).convert(mode)
                picture.save(root / name / sub / f"{name}-{i}.png")
    (root / "COVID.metadata.xlsx").write_bytes(b"")
    return root


@pytest.mark.parametrize("level", ["images", ""])
def test_radiography_with_and_without_the_level(tmp_path, level):
    put_xrays(tmp_path / "COVID-19_Radiography_Dataset", level, "RGB" if level else "L")
    source = load("covid19_radiography", data_dir=tmp_path)
    assert source.images.shape == (8, 299, 299, 1) and source.class_names == NAMES
    assert source.images[:, 0, 0, 0].tolist() == [0, 1, 10, 11, 20, 21, 30, 31]
    assert source.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert covid19_radiography(tmp_path, size=(224, 220)).images.shape == (8, 224, 220, 1)


def test_wrong_radiography(tmp_path):
    root = put_xrays(tmp_path / "COVID-19_Radiography_Dataset", "images")
    file = root / "Normal" / "images" / "Normal-0.png"
    image = pytest.importorskip("PIL.Image")
    small = io.BytesIO()
    image.new("L", (20, 299)).save(small, "PNG")
    for content, reason in [(small.getvalue(), "299x20 pixels"), (file.read_bytes()[:99], "cannot be read")]:
        file.write_bytes(content)
        with pytest.raises(DatasetCorrupt, match=rf"Normal-0\.png: {reason}"):
            load("covid19_radiography", data_dir=tmp_path)
    for other in file.parent.iterdir():
        other.unlink()
    with pytest.raises(DatasetCorrupt, match="Normal: holds no images"):
        load("covid19_radiography", data_dir=tmp_path)
    with pytest.raises(DatasetNotFound, match=r"Lung_Opacity.*kaggle"):
        load("covid19_radiography", data_dir=tmp_path / "nowhere")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_random_damage_to_arrays(tmp_path, dtype):
    put_arrays(tmp_path / "here", COLOURS.astype(dtype))
    assert survives(lambda: load("covid19_cycfed", data_dir=tmp_path / "here"), tmp_path / "here") > 300


@pytest.mark.slow
def test_random_damage_to_radiography(tmp_path):
    root = put_xrays(tmp_path / "here", "images")
    assert survives(lambda: covid19_radiography(root, size=(20, 20)), root) > 50


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_odd_arrays(tmp_path):
    rng, noticed = np.random.default_rng(0), 0
    for _ in range(1000):
        arrays = {"x": COLOURS, "y": LABELS}
        name = rng.choice(list(arrays))
        put_arrays(tmp_path / "here", **arrays | {name: odd(arrays[name], rng)})
        noticed += judges(lambda: load("covid19_cycfed", data_dir=tmp_path / "here"))
    assert noticed > 500
