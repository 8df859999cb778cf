"""FEMNIST as on Hugging Face (flwrlabs/femnist): parquet files of PNG images, one split.

The form that CRAFT (Wang, Liu and Thuerey, 2026, arXiv 2605.21317) uses. Writers are numbered in the order of
their first row, as there. There, paper is white; ``replace(source, images=255 - source.images)`` has it so.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedjax_geo.data._cache import Arrays, cached
from fedjax_geo.data._femnist import pack, unpack
from fedjax_geo.data._guard import blame, need
from fedjax_geo.data._images import decode
from fedjax_geo.data._places import find_form, put_into
from fedjax_geo.data._source import DatasetCorrupt, IntArray, Source

_ROWS = 4096  # decoded at a time
_HINT = "Get data/*.parquet of https://huggingface.co/datasets/flwrlabs/femnist and " + put_into("them")


def femnist_parquet(data_dir: str | os.PathLike[str] | None = None) -> Source:
    """Some 814,000 characters by writer, all of them training examples.

    Args:
        data_dir: the only place to look for the files; None searches the usual places.

    Raises:
        DatasetNotFound: the files are in none of the places searched.
        DatasetCorrupt: a file is damaged or not the expected one.
        ImportError: pyarrow or Pillow is not installed.
    """
    _, [paths] = find_form(
        {"files": ["train-*.parquet"]},
        ("data", "femnist_parquet", "femnist_parquet/data", "femnist", "femnist/data"),
        data_dir=data_dir,
        name="femnist_parquet",
        hint=_HINT,
    )
    return unpack("femnist_parquet", paths[0].parent, cached("femnist_parquet", paths, lambda: _read(paths)))


def _read(paths: list[Path]) -> Arrays:
    parquet = need("pyarrow.parquet", "femnist", "reading parquet files")
    images: list[npt.NDArray[np.uint8]] = []
    labels: list[IntArray] = []
    writers: list[str] = []
    for path in paths:
        with blame(path), parquet.ParquetFile(path, page_checksum_verification=True) as file:
            batches = file.iter_batches(batch_size=_ROWS, columns=["image", "writer_id", "character"])
            for batch in batches:
                rows: list[dict[str, Any]] = batch.to_pylist()
                images.append(_decode(path, rows))
                labels.append(np.array([row["character"] for row in rows], np.int64))
                writers += [row["writer_id"] for row in rows]
    if not images or not all(isinstance(writer, str) for writer in writers):
        raise DatasetCorrupt(f"{paths[0]}: writer_id must be text, in at least one row")
    return pack(paths[0].parent, np.concatenate(images), np.concatenate(labels), writers, len(writers))


def _decode(path: Path, rows: list[dict[str, Any]]) -> npt.NDArray[np.uint8]:
    images = [decode(row["image"]["bytes"], path, mode="L", shape=(28, 28)) for row in rows]
    return np.array(images, np.uint8).reshape(len(rows), 28, 28, 1)
