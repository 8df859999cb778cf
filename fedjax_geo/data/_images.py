"""Decoding image files with Pillow, and finding them in folders."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedjax_geo.data._guard import blame, need, read_bytes
from fedjax_geo.data._source import DatasetCorrupt

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp")
MAX_FILE = 1 << 25  # bytes of one image file
_MAX_PIXELS = 1 << 25


def decode(
    content: bytes,
    where: Path | str,
    *,
    mode: str = "RGB",
    shape: tuple[int, int] | None = None,
    resize: tuple[int, int] | None = None,
) -> npt.NDArray[np.uint8]:
    """Decode a PNG, JPEG or BMP file.

    Args:
        content: the file.
        where: its name, for the message.
        mode: ``L``, ``RGB`` or ``RGBA``; other images are converted.
        shape: the only height and width allowed.
        resize: height and width to bring it to (bilinear).

    Returns:
        uint8 [height, width, channels].

    Raises:
        DatasetCorrupt: no such image, too large, or of another shape.
        ImportError: Pillow is not installed.
    """
    image_module = need("PIL.Image", "images", "decoding images")
    with blame(where), image_module.open(io.BytesIO(content), formats=("PNG", "JPEG", "BMP")) as image:
        found = (image.height, image.width)
        if shape is not None and found != shape:
            raise DatasetCorrupt(f"{where}: {found[0]}x{found[1]} pixels, expected {shape[0]}x{shape[1]}")
        if found[0] * found[1] > _MAX_PIXELS:
            raise DatasetCorrupt(f"{where}: {found[0]}x{found[1]} pixels are too many")
        image = image.convert(mode)
        if resize is not None and found != resize:
            image = image.resize((resize[1], resize[0]), image_module.Resampling.BILINEAR)
        return np.array(image, np.uint8).reshape(image.height, image.width, -1)


def decode_all(
    names: Sequence[Path | str], read: Callable[[Any], bytes] | None = None, **how: Any
) -> npt.NDArray[np.uint8]:
    """Decode equally large images; ``how`` as in ``decode``, ``read`` gets a file's content by its name.

    Returns:
        uint8 [N, height, width, channels].

    Raises:
        DatasetCorrupt: one of them is no image, or of another shape than the first.
    """
    read = read or (lambda path: read_bytes(path, MAX_FILE))
    first = decode(read(names[0]), names[0], **how)
    images = np.empty((len(names), *first.shape), np.uint8)
    for i, name in enumerate(names):
        image = decode(read(name), name, **how)
        if image.shape != first.shape:
            raise DatasetCorrupt(
                f"{name}: shape {image.shape}, but {names[0]} has {first.shape}; they can be resized"
            )
        images[i] = image
    return images


def image_files(folder: Path, *, without: Sequence[str] = ()) -> list[Path]:
    """Images anywhere below a folder, sorted; hidden files and the given subfolders are passed over."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and not path.name.startswith(".")
        and not set(path.relative_to(folder).parts[:-1]) & set(without)
        and path.is_file()
    )
