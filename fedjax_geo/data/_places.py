"""Where files of data sets are looked for. Nothing is ever downloaded."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fedjax_geo.data._source import DatasetNotFound

DATA_VARIABLE = "FEDJAX_GEO_DATA"
SYSTEM = Path("/usr/share/datasets")


def roots(data_dir: str | os.PathLike[str] | None) -> list[Path]:
    """The places searched, in order; only the first when it is given."""
    if data_dir is not None:
        return [Path(data_dir)]
    variable = os.environ.get(DATA_VARIABLE)
    return [*([Path(variable)] if variable else []), Path("~/.cache/fedjax_geo").expanduser(), SYSTEM]


def put_into(what: str) -> str:
    """The second half of most hints."""
    return f"put {what} into a folder named by data_dir or the environment variable {DATA_VARIABLE}."


def not_found(
    name: str, wanted: str, data_dir: str | os.PathLike[str] | None, folders: Iterable[str], hint: str
) -> DatasetNotFound:
    """The error for files that are in none of the places."""
    searched, subfolders = (", ".join(map(str, names)) for names in (roots(data_dir), folders))
    return DatasetNotFound(f"{name}: looked for {wanted} in {searched}, and there in {subfolders}. {hint}")


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
    for root in roots(data_dir):
        for folder in (root, *(root / sub for sub in folders)):
            paths = [folder / file if (folder / file).is_file() else folder / f"{file}.gz" for file in files]
            if all(path.is_file() for path in paths):
                return paths
    raise not_found(name, f"{', '.join(files)} (plain or .gz)", data_dir, folders, hint)


def find_form(
    forms: Mapping[str, Sequence[str]],
    folders: Sequence[str],
    *,
    data_dir: str | os.PathLike[str] | None,
    name: str,
    hint: str,
) -> tuple[str, list[list[Path]]]:
    """Find a data set that comes in several forms; in each place the first form present wins.

    Args:
        forms: form -> glob patterns, each of which must match a file or folder.
        folders: as in ``find``.
        data_dir: as in ``find``.
        name: of the data set, for the message.
        hint: how to get the files, for the message.

    Returns:
        The form, and for each of its patterns the matches, sorted by name.

    Raises:
        DatasetNotFound: no folder holds any of the forms.
    """
    for root in roots(data_dir):
        for form, patterns in forms.items():
            for folder in (root, *(root / sub for sub in folders)):
                matches = [sorted(folder.glob(pattern)) for pattern in patterns]
                if all(matches):
                    return form, matches
    wanted = ", or ".join(" with ".join(patterns) for patterns in forms.values())
    raise not_found(name, wanted, data_dir, folders, hint)
