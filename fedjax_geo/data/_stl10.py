"""STL-10: A. Coates, H. Lee and A. Y. Ng, AISTATS 2011. The labelled images; the unlabelled ones are left alone.

Each image is three planes, red, green and blue, and each plane is stored column by column.
"""

import os
from pathlib import Path

import numpy as np

from fedjax_geo.data._archive import read_tar_gz
from fedjax_geo.data._cache import Arrays, cached
from fedjax_geo.data._guard import blame, check_labels, read_bytes, read_exactly, unique_names
from fedjax_geo.data._places import find_form, put_into
from fedjax_geo.data._prepare import scale
from fedjax_geo.data._source import DatasetCorrupt, Source

_EXAMPLES = {"train": 5_000, "test": 8_000}
_PIXELS = 3 * 96 * 96
_TOTAL = 1 << 32  # bytes of the archive, decompressed: 3.1 billion with the unlabelled images
_HINT = "Get stl10_binary.tar.gz from https://cs.stanford.edu/~acoates/stl10/ and " + put_into(
    "it, or the files in it,"
)


def stl10(data_dir: str | os.PathLike[str] | None = None) -> Source:
    """13,000 colour images of 96x96 pixels, 10 classes; official training and test part pooled.

    Args:
        data_dir: the only place to look for the files; None searches the usual places.

    Raises:
        DatasetNotFound: the files are in none of the places searched.
        DatasetCorrupt: a file is damaged or not the expected one.
    """
    sizes: dict[str, int] = {}
    for part, count in _EXAMPLES.items():
        sizes |= {f"{part}_X.bin": count * _PIXELS, f"{part}_y.bin": count}
    files = [*sizes, "class_names.txt"]
    form, matches = find_form(
        {"files": files, "archive": ["stl10_binary.tar.gz"]},
        ("stl10_binary", "stl10", "stl10/stl10_binary"),
        data_dir=data_dir,
        name="stl10",
        hint=_HINT,
    )
    path = matches[0][0]
    place = path if form == "archive" else path.parent

    def build() -> Arrays:
        if form == "archive":
            return _decode(path, read_tar_gz(path, {**sizes, "class_names.txt": 4096}, total=_TOTAL))
        contents = {file: read_exactly(place / file, size) for file, size in sizes.items()}
        return _decode(place, {**contents, "class_names.txt": read_bytes(place / "class_names.txt", 4096)})

    arrays = cached("stl10", [match[0] for match in matches], build)
    return Source(
        images=arrays["images"],
        labels=arrays["labels"],
        class_names=tuple(arrays["names"].tobytes().decode().split("\n")),
        prepare=scale(255),
        num_train=_EXAMPLES["train"],
        provenance=f"stl10: {place}",
        licence="ImageNet's terms of access: non-commercial research and education",
    )


def _decode(place: Path, contents: dict[str, bytes]) -> Arrays:
    images, labels = [], []
    for part, count in _EXAMPLES.items():
        x, y = contents[f"{part}_X.bin"], contents[f"{part}_y.bin"]
        if (len(x), len(y)) != (count * _PIXELS, count):
            raise DatasetCorrupt(f"{place}: {part} files of {len(x)} and {len(y)} bytes, expected {count} images")
        images.append(np.frombuffer(x, np.uint8).reshape(-1, 3, 96, 96).transpose(0, 3, 2, 1))
        labels.append(np.frombuffer(y, np.uint8).astype(np.int32) - 1)
        check_labels(f"{place}: {part}_y.bin (less one)", labels[-1], 10, count // 10)
    with blame(f"{place}: class_names.txt", UnicodeDecodeError):
        names = unique_names(f"{place}: class_names.txt", contents["class_names.txt"].decode("ascii").split(), 10)
    return {
        "images": np.concatenate(images),
        "labels": np.concatenate(labels),
        "names": np.frombuffer("\n".join(names).encode(), np.uint8),
    }
