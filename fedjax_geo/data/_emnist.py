"""EMNIST: G. Cohen, S. Afshar, J. Tapson and A. van Schaik, 2017, arXiv 1702.05373. Read from local files.

The stored images are transposed. Writers are not known; for these see the readers of FEMNIST.
"""

import os

import numpy as np

from fedjax_geo.data._femnist import CHARACTERS
from fedjax_geo.data._guard import check_labels
from fedjax_geo.data._idx import read_idx
from fedjax_geo.data._inputs import MNIST_SCALE
from fedjax_geo.data._places import find, put_into
from fedjax_geo.data._source import Source

_MERGED = (*CHARACTERS[:36], *"abdefghnqrt")  # other small letters look like their capitals
# Training and test examples, classes, whether equally frequent
CUTS = {
    "byclass": (697_932, 116_323, CHARACTERS, False),
    "bymerge": (697_932, 116_323, _MERGED, False),
    "balanced": (112_800, 18_800, _MERGED, True),
    "letters": (124_800, 20_800, CHARACTERS[10:36], True),
    "digits": (240_000, 40_000, CHARACTERS[:10], True),
    "mnist": (60_000, 10_000, CHARACTERS[:10], True),
}
_HINT = (
    "Get gzip.zip from https://www.nist.gov/itl/products-and-services/emnist-dataset, unpack it and "
    + put_into("the files")
)


def emnist(cut: str, data_dir: str | os.PathLike[str] | None = None) -> Source:
    """Grey images of 28x28 pixels, handwritten digits and letters; official training and test part pooled.

    Args:
        cut: ``byclass`` (62 classes), ``bymerge`` and ``balanced`` (47), ``letters`` (26, small and capital
            together), ``digits`` or ``mnist``.
        data_dir: the only place to look for the files; None searches the usual places.

    Raises:
        ValueError: an unknown cut.
        DatasetNotFound: the files are in none of the places searched.
        DatasetCorrupt: a file is damaged or not the expected one.
    """
    if cut not in CUTS:
        raise ValueError(f"cut must be one of {', '.join(CUTS)}, got {cut!r}")
    num_train, num_test, names, balanced = CUTS[cut]
    shapes: dict[str, tuple[int, ...]] = {}
    for part, count in (("train", num_train), ("test", num_test)):
        shapes[f"emnist-{cut}-{part}-images-idx3-ubyte"] = (count, 28, 28)
        shapes[f"emnist-{cut}-{part}-labels-idx1-ubyte"] = (count,)
    paths = find(
        list(shapes),
        ("emnist", "emnist/gzip", "gzip", "EMNIST/raw"),
        data_dir=data_dir,
        name=f"emnist_{cut}",
        hint=_HINT,
    )
    train_x, train_y, test_x, test_y = (
        read_idx(path, shape) for path, shape in zip(paths, shapes.values(), strict=True)
    )
    offset = 1 if cut == "letters" else 0  # its labels start at 1
    labels = [values.astype(np.int32) - offset for values in (train_y, test_y)]
    for path, values in zip(paths[1::2], labels, strict=True):
        check_labels(path, values, len(names), len(values) // len(names) if balanced else None)
    return Source(
        images=np.concatenate([train_x, test_x]).transpose(0, 2, 1)[..., None],
        labels=np.concatenate(labels),
        class_names=tuple(names),
        prepare=MNIST_SCALE,
        num_train=num_train,
        provenance=f"emnist_{cut}: {paths[0].parent}",
        licence="public domain (NIST Special Database 19)",
    )
