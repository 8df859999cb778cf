"""Where files of data sets are looked for. Nothing is ever downloaded."""

import os
from collections.abc import Sequence
from pathlib import Path

from fedjax_geo.data._source import DatasetNotFound

DATA_VARIABLE = "FEDJAX_GEO_DATA"
SYSTEM = Path("/usr/share/datasets")


def _roots(data_dir: str | os.PathLike[str] | None) -> list[Path]:
    if data_dir is not None:
        return [Path(data_dir)]
    variable = os.environ.get(DATA_VARIABLE)
    return [*([Path(variable)] if variable else []), Path("~/.cache/fedjax_geo").expanduser(), SYSTEM]


def find(
    files: Sequence[str],
    folders: Sequence[str],
    *,
    data_dir: str | os.PathLike[str] | None,
    name: str,
    hint: str,
) -> list[Path]:
    """Find the first folder that holds all files, each plain or gzipped.

    Args:
        files: names without ``.gz``.
        folders: subfolders tried below each place, after the place itself.
        data_dir: the only place to look, or None for the environment variable ``FEDJAX_GEO_DATA``, the user's
            cache and the system's data sets, in this order.
        name: of the data set, for the message.
        hint: how to get the files, for the message.

    Returns:
        Paths in the order of ``files``.

    Raises:
        DatasetNotFound: no folder holds them all.
    """
    roots = _roots(data_dir)
    for root in roots:
        for folder in (root, *(root / sub for sub in folders)):
            paths = [folder / file if (folder / file).is_file() else folder / f"{file}.gz" for file in files]
            if all(path.is_file() for path in paths):
                return paths
    wanted, searched, subfolders = (", ".join(map(str, names)) for names in (files, roots, folders))
    raise DatasetNotFound(
        f"{name}: looked for {wanted} (plain or .gz) in {searched}, and there in {subfolders}. {hint}"
    )
