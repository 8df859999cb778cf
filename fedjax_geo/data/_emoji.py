"""Emoji by vendor: small colour pictures in two styles, a natural domain shift.

The pictures are Google's Noto Emoji (Apache-2.0) and Twitter's Twemoji (CC BY 4.0), in the npm packages
emoji-datasource-google and emoji-datasource-twitter. Nearly every emoji is in both, drawn by other hands; to
test on emoji that no client has seen, one must part them by emoji, not by example.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedjax_geo.data._archive import read_tar_gz
from fedjax_geo.data._cache import Arrays, cached
from fedjax_geo.data._guard import blame, read_bytes
from fedjax_geo.data._images import decode
from fedjax_geo.data._places import find_form, put_into
from fedjax_geo.data._prepare import scale
from fedjax_geo.data._source import DatasetCorrupt, Source

_VENDORS = ("google", "twitter")
_CATEGORIES = (
    "Smileys & Emotion",
    "People & Body",
    "Animals & Nature",
    "Food & Drink",
    "Travel & Places",
    "Activities",
    "Objects",
    "Symbols",
    "Flags",
)
_SIZE, _CELL = 32, 34  # each picture has a border of one pixel
_LIMIT = 1 << 25  # bytes of the list, and of the sheet
_TOTAL = 1 << 28  # bytes of a package, decompressed


def emoji_vendors(data_dir: str | os.PathLike[str] | None = None) -> Source:
    """About 1,900 emoji of two vendors, 32x32 pixels in colour; the label is the category, the client the vendor.

    Pictures with transparent parts are laid on white. Skin tones and other variants are left out, and so is
    the category Component.

    Args:
        data_dir: the only place to look for the packages, packed or unpacked; None searches the usual places.

    Raises:
        DatasetNotFound: a package is in none of the places searched.
        DatasetCorrupt: a file is damaged or not the expected one.
        ImportError: Pillow is not installed.
    """
    images, labels, places = [], [], []
    for vendor in _VENDORS:
        arrays, place = _vendor(vendor, data_dir)
        images.append(arrays["images"])
        labels.append(arrays["labels"])
        places.append(str(place))
    sizes = [len(part) for part in labels]
    return Source(
        images=np.concatenate(images),
        labels=np.concatenate(labels),
        class_names=_CATEGORIES,
        prepare=scale(255),
        num_train=sum(sizes),
        provenance=f"emoji_vendors: {' and '.join(places)}, on white",
        licence="Google: Apache-2.0; Twitter: CC BY 4.0",
        client_ids=np.repeat(np.arange(len(_VENDORS), dtype=np.int32), sizes),
        client_names=_VENDORS,
    )


def _vendor(vendor: str, data_dir: str | os.PathLike[str] | None) -> tuple[Arrays, Path]:
    package, sheet = f"emoji-datasource-{vendor}", f"img/{vendor}/sheets-clean/32.png"
    form, matches = find_form(
        {"folder": ["emoji.json", sheet], "archive": [f"{package}-*.tgz"]},
        (package, f"{package}/package", f"node_modules/{package}", "emoji", f"emoji/{package}"),
        data_dir=data_dir,
        name="emoji_vendors",
        hint=f"Get it by: npm pack {package}; and {put_into('the .tgz, or what is in it,')}",
    )
    path = matches[0][-1]  # of several archives the last

    def build() -> Arrays:
        if form == "folder":
            table, picture = read_bytes(path, _LIMIT), read_bytes(matches[1][0], _LIMIT)
        else:
            table, picture = read_tar_gz(path, {"emoji.json": _LIMIT, sheet: _LIMIT}, total=_TOTAL).values()
        return _cut(vendor, f"{path}: {sheet}", table, picture)

    files = [path] if form == "archive" else [path, matches[1][0]]
    return cached(f"emoji-{vendor}", files, build), path if form == "archive" else path.parent


def _cut(vendor: str, where: str, table: bytes, picture: bytes) -> Arrays:
    """Cut the pictures out of the sheet."""
    rgba = decode(picture, where, mode="RGBA").astype(np.uint32)
    colour, opacity = rgba[..., :3], rgba[..., 3:]
    sheet = ((colour * opacity + 255 * (255 - opacity) + 127) // 255).astype(np.uint8)
    images: list[npt.NDArray[np.uint8]] = []
    labels: list[int] = []
    entries: Any = None
    with blame(where):
        entries = json.loads(table)
        for entry in entries:
            if not entry[f"has_img_{vendor}"] or entry["category"] == "Component":
                continue
            x, y = entry["sheet_x"], entry["sheet_y"]
            if type(x) is not int or type(y) is not int or x < 0 or y < 0:
                raise DatasetCorrupt(f"{where}: emoji at {x}, {y}")
            top, left = y * _CELL + 1, x * _CELL + 1
            cell = sheet[top : top + _SIZE, left : left + _SIZE]
            if cell.shape != (_SIZE, _SIZE, 3) or entry["category"] not in _CATEGORIES:
                raise DatasetCorrupt(f"{where}: emoji at {x}, {y} of category {entry['category']!r}")
            images.append(cell)
            labels.append(_CATEGORIES.index(entry["category"]))
    if not images:
        raise DatasetCorrupt(f"{where}: holds no emoji")
    return {"images": np.array(images), "labels": np.array(labels, np.int32)}
