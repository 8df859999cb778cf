"""Images sorted into one folder per class."""

import os
from pathlib import Path

import numpy as np

from fedjax_geo.data._cache import cached
from fedjax_geo.data._images import decode_all, image_files
from fedjax_geo.data._prepare import scale
from fedjax_geo.data._source import DatasetCorrupt, DatasetNotFound, Source


def image_folder(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    size: tuple[int, int] | None = None,
    grey: bool = False,
) -> Source:
    """Any images, one subfolder per class; classes are numbered in the order of their names.

    If the folder holds ``train`` and ``test``, the classes are looked for in both of them.

    Args:
        data_dir: the folder; there are no usual places for it.
        size: height and width to bring all images to; otherwise they must agree.
        grey: one channel instead of three.

    Raises:
        DatasetNotFound: no folder given, or no images in it.
        DatasetCorrupt: an image cannot be decoded or does not fit the others.
    """
    if data_dir is None:
        raise DatasetNotFound("image_folder: there is no usual place; give data_dir, a folder with one per class")
    root = Path(data_dir)
    parts = [root / "train", root / "test"]
    if not all(part.is_dir() for part in parts):
        parts = [root]
    classes = sorted({child.name for part in parts if part.is_dir() for child in part.iterdir() if child.is_dir()})
    classes = [name for name in classes if not name.startswith(".")]
    files: list[Path] = []
    labels: list[int] = []
    sizes: list[int] = []
    for part in parts:
        before = len(files)
        for label, name in enumerate(classes):
            found = image_files(part / name)
            files += found
            labels += [label] * len(found)
        sizes.append(len(files) - before)
    if not files:
        raise DatasetNotFound(
            f"image_folder: looked for png, jpg or bmp images in subfolders of {root}, one subfolder per class. "
            "Put them there or name another folder by data_dir."
        )
    empty = set(range(len(classes))) - set(labels)
    if empty:
        raise DatasetCorrupt(f"{root}: no images of class {classes[min(empty)]}")
    images = cached(
        f"image_folder-{size and f'{size[0]}x{size[1]}'}-{'L' if grey else 'RGB'}",
        files,
        lambda: {"images": decode_all(files, mode="L" if grey else "RGB", resize=size)},
    )["images"]
    return Source(
        images=images,
        labels=np.array(labels, np.int32),
        class_names=tuple(classes),
        prepare=scale(255),
        num_train=sizes[0],
        provenance=f"image_folder: {root}{f', resized to {size[0]}x{size[1]}' if size else ''}",
        licence="not known",
    )
