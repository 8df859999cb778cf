"""COVID-19 Radiography Database: M. E. H. Chowdhury et al., IEEE Access 2020; T. Rahman et al., 2021.

Another set than the one of ``covid19_cycfed``. X-rays of one class come mostly from the same hospitals, so a
model may learn these instead.
"""

import os

import numpy as np

from fedjax_geo.data._cache import Arrays, cached
from fedjax_geo.data._images import decode_all, image_files
from fedjax_geo.data._places import find_form, put_into
from fedjax_geo.data._prepare import scale
from fedjax_geo.data._source import DatasetCorrupt, Source

_CLASSES = ("COVID", "Lung_Opacity", "Normal", "Viral Pneumonia")
_SHAPE = (299, 299)


def covid19_radiography(
    data_dir: str | os.PathLike[str] | None = None, *, size: tuple[int, int] | None = None
) -> Source:
    """21,165 grey X-rays of 299x299 pixels, four classes, without an official test part; masks are left out.

    Args:
        data_dir: the only place to look for the files; None searches the usual places.
        size: height and width to bring the images to.

    Raises:
        DatasetNotFound: the files are in none of the places searched.
        DatasetCorrupt: a file is damaged or not the expected one.
        ImportError: Pillow is not installed.
    """
    _, matches = find_form(
        {"folders": [f"{name}/" for name in _CLASSES]},
        (
            "COVID-19_Radiography_Dataset",
            "covid19_radiography",
            "covid19_radiography/COVID-19_Radiography_Dataset",
        ),
        data_dir=data_dir,
        name="covid19_radiography",
        hint="Get https://www.kaggle.com/datasets/tawsifurrahman/covid19-radiography-database, unpack it and "
        + put_into("COVID-19_Radiography_Dataset"),
    )
    folders = [match[0] for match in matches]
    files = [image_files(folder, without=("masks",)) for folder in folders]
    for folder, found in zip(folders, files, strict=True):
        if not found:
            raise DatasetCorrupt(f"{folder}: holds no images")
    every = [file for found in files for file in found]
    suffix = f"-{size[0]}x{size[1]}" if size else ""

    def build() -> Arrays:
        return {"images": decode_all(every, mode="L", shape=_SHAPE, resize=size)}

    return Source(
        images=cached(f"covid19_radiography{suffix}", every, build)["images"],
        labels=np.repeat(np.arange(len(files), dtype=np.int32), [len(found) for found in files]),
        class_names=_CLASSES,
        prepare=scale(255),
        num_train=len(every),
        provenance=f"covid19_radiography: {folders[0].parent}{f', resized to {suffix[1:]}' if size else ''}",
        licence="as stated by its authors: free for research, cite both papers",
    )
