"""Emoji by vendor: a tiny package of the true form, and the real packages where they are."""

import io
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from damage import survives

from fedjax_geo.data import DatasetCorrupt, DatasetNotFound, load

Image = pytest.importorskip("PIL.Image")

REAL_HOME = Path("~").expanduser()  # before a test hides it
REAL_PLACES = [os.environ.get("FEDJAX_GEO_DATA"), REAL_HOME / ".cache/fedjax_geo", "/usr/share/datasets"]
VENDORS = ("google", "twitter")


def entry(x, y, category, **facts):
    return {
        "name": f"{category} {x} {y}",
        "unified": f"{x}-{y}",
        "sheet_x": x,
        "sheet_y": y,
        "category": category,
        "has_img_google": True,
        "has_img_twitter": True,
    } | facts


ENTRIES = [
    entry(0, 0, "Symbols"),
    entry(1, 0, "Flags"),
    entry(0, 1, "Component"),
    entry(1, 1, "Activities", has_img_twitter=False),
]


def cells(vendor):
    """RGBA [2, 2, 32, 32, 4], by row and column of the sheet."""
    return np.random.default_rng(len(vendor)).integers(0, 256, (2, 2, 32, 32, 4)).astype(np.uint8)


def package(vendor, entries=ENTRIES):
    sheet = np.zeros((68, 68, 4), np.uint8)
    for y in range(2):
        for x in range(2):
            sheet[y * 34 + 1 : y * 34 + 33, x * 34 + 1 : x * 34 + 33] = cells(vendor)[y, x]
    file = io.BytesIO()
    Image.fromarray(sheet).save(file, "PNG")
    return {
        "package.json": b"{}",
        "emoji_pretty.json": b"[]",
        "emoji.json": json.dumps(entries).encode(),
        f"img/{vendor}/sheets/32.png": b"the other sheet",
        f"img/{vendor}/sheets-clean/32.png": file.getvalue(),
    }


def put(root, form, **changes):
    for vendor in VENDORS:
        files = package(vendor, **changes)
        if form == "archive":
            root.mkdir(parents=True, exist_ok=True)
            with tarfile.open(root / f"emoji-datasource-{vendor}-16.0.0.tgz", "w:gz") as archive:
                for name, content in files.items():
                    info = tarfile.TarInfo(f"package/{name}")
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))
        else:
            folder = root / form.format(vendor)
            for name, content in files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    "form", ["archive", "emoji-datasource-{}", "emoji-datasource-{}/package", "node_modules/emoji-datasource-{}"]
)
def test_both_vendors(tmp_path, form):
    put(tmp_path / "here", form)
    source = load("emoji_vendors", data_dir=tmp_path / "here")
    assert source.images.shape == (5, 32, 32, 3) and source.num_classes == 9
    assert [source.class_names[label] for label in source.labels] == [
        "Symbols",
        "Flags",
        "Activities",
        "Symbols",
        "Flags",
    ]
    assert source.client_names == VENDORS and source.client_ids.tolist() == [0, 0, 0, 1, 1]
    for i, (vendor, y, x) in enumerate(
        [("google", 0, 0), ("google", 0, 1), ("google", 1, 1), ("twitter", 0, 0), ("twitter", 0, 1)]
    ):
        cell = cells(vendor)[y, x].astype(float)
        opacity = cell[..., 3:] / 255
        np.testing.assert_allclose(source.images[i], cell[..., :3] * opacity + 255 * (1 - opacity), atol=0.51)


def test_one_vendor_is_not_enough(tmp_path):
    put(tmp_path, "archive")
    (tmp_path / "emoji-datasource-twitter-16.0.0.tgz").unlink()
    with pytest.raises(
        DatasetNotFound, match=r"twitter-\*\.tgz.*npm pack emoji-datasource-twitter.*FEDJAX_GEO_DATA"
    ):
        load("emoji_vendors", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([entry(2, 0, "Flags")], "emoji at 2, 0"),
        ([entry(-1, 0, "Flags")], "emoji at -1, 0"),
        ([entry(0.5, 0, "Flags")], "emoji at 0.5, 0"),
        ([entry(0, 0, "Weather")], "category 'Weather'"),
        ([{"category": "Flags"}], "cannot be read"),
        ({"a": 1}, "cannot be read"),
        ([], "no emoji"),
    ],
)
def test_wrong_lists(tmp_path, entries, reason):
    put(tmp_path, "emoji-datasource-{}", entries=entries)
    with pytest.raises(DatasetCorrupt, match=reason):
        load("emoji_vendors", data_dir=tmp_path)


def test_damaged_packages(tmp_path):
    put(tmp_path, "archive")
    path = tmp_path / "emoji-datasource-google-16.0.0.tgz"
    good = path.read_bytes()
    for content in (good[: len(good) // 2], b"", b"PK"):
        path.write_bytes(content)
        with pytest.raises(DatasetCorrupt, match=path.name):
            load("emoji_vendors", data_dir=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["archive", "emoji-datasource-{}"])
def test_random_damage(tmp_path, form):
    put(tmp_path / "here", form)
    assert survives(lambda: load("emoji_vendors", data_dir=tmp_path / "here"), tmp_path / "here") > 200


def test_real_emoji():
    for place in filter(None, REAL_PLACES):
        try:
            source = load("emoji_vendors", data_dir=place)
            break
        except DatasetNotFound:
            continue
    else:
        pytest.skip("the npm packages emoji-datasource-google and -twitter are in none of the usual places")
    assert source.images.shape == (3812, 32, 32, 3)
    for vendor in (0, 1):
        counts = np.bincount(source.labels[source.client_ids == vendor])
        assert counts.tolist() == [169, 386, 159, 131, 218, 85, 264, 224, 270]
