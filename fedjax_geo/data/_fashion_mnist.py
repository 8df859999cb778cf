"""Fashion-MNIST: H. Xiao, K. Rasul and R. Vollgraf, 2017, arXiv 1708.07747. Read from local files."""

import os

import numpy as np

from fedjax_geo.data._idx import read_idx
from fedjax_geo.data._inputs import FASHION_SCALE
from fedjax_geo.data._places import DATA_VARIABLE, find
from fedjax_geo.data._source import Source

# Shape and sha256 of the decompressed bytes: upstream's files, Debian's and unpacked ones all pass.
_FILES = {
    "train-images-idx3-ubyte": (
        (60_000, 28, 28),
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    ),
    "t10k-images-idx3-ubyte": (
        (10_000, 28, 28),
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    ),
    "train-labels-idx1-ubyte": (
        (60_000,),
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    ),
    "t10k-labels-idx1-ubyte": (
        (10_000,),
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
}
CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_HINT = (
    "Install the Debian package dataset-fashion-mnist, or put the four files of "
    "https://github.com/zalandoresearch/fashion-mnist into a folder named by data_dir "
    f"or the environment variable {DATA_VARIABLE}."
)


def fashion_mnist(data_dir: str | os.PathLike[str] | None = None) -> Source:
    """70,000 grey images of 28x28 pixels, 10 kinds of clothing; official training and test part pooled.

    Args:
        data_dir: the only place to look for the files; None searches the usual places.

    Raises:
        DatasetNotFound: the files are in none of the places searched.
        DatasetCorrupt: a file is damaged or not the expected one.
    """
    paths = find(
        list(_FILES),
        ("fashion_mnist", "fashion-mnist", "FashionMNIST/raw"),
        data_dir=data_dir,
        name="fashion_mnist",
        hint=_HINT,
    )
    train_x, test_x, train_y, test_y = (
        read_idx(path, *facts) for path, facts in zip(paths, _FILES.values(), strict=True)
    )
    return Source(
        images=np.concatenate([train_x, test_x])[..., None],
        labels=np.concatenate([train_y, test_y]).astype(np.int32),
        class_names=CLASSES,
        prepare=FASHION_SCALE,
        num_train=len(train_y),
        provenance=f"fashion_mnist: {paths[0].parent}",
        licence="MIT",
    )
