"""MNIST: Y. LeCun, C. Cortes and C. J. C. Burges, 1998. Read from local files."""

import os

import numpy as np

from fedjax_geo.data._idx import read_idx
from fedjax_geo.data._inputs import MNIST_SCALE
from fedjax_geo.data._places import find, put_into
from fedjax_geo.data._source import DatasetCorrupt, Source

_FILES = {
    "train-images-idx3-ubyte": (60_000, 28, 28),
    "t10k-images-idx3-ubyte": (10_000, 28, 28),
    "train-labels-idx1-ubyte": (60_000,),
    "t10k-labels-idx1-ubyte": (10_000,),
}
# Examples of each digit: other sets have files of the same names and sizes.
_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
_HINT = "Get the four files of https://storage.googleapis.com/cvdf-datasets/mnist/ and " + put_into("them")


def mnist(data_dir: str | os.PathLike[str] | None = None) -> Source:
    """70,000 grey images of 28x28 pixels, 10 digits; official training and test part pooled.

    Args:
        data_dir: the only place to look for the files; None searches the usual places.

    Raises:
        DatasetNotFound: the files are in none of the places searched.
        DatasetCorrupt: a file is damaged or not the expected one.
    """
    paths = find(list(_FILES), ("mnist", "MNIST/raw"), data_dir=data_dir, name="mnist", hint=_HINT)
    train_x, test_x, train_y, test_y = (
        read_idx(path, shape) for path, shape in zip(paths, _FILES.values(), strict=True)
    )
    for path, labels, expected in ((paths[2], train_y, _TRAIN), (paths[3], test_y, _TEST)):
        found = np.bincount(labels, minlength=10).tolist()
        if found != expected:
            raise DatasetCorrupt(f"{path}: examples of each label are {found[:10]}, MNIST has {expected}")
    return Source(
        images=np.concatenate([train_x, test_x])[..., None],
        labels=np.concatenate([train_y, test_y]).astype(np.int32),
        class_names=tuple("0123456789"),
        prepare=MNIST_SCALE,
        num_train=len(train_y),
        provenance=f"mnist: {paths[0].parent}",
        licence="CC BY-SA 3.0",
    )
