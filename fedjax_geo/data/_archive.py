"""Reading single members of tar and zip archives into memory, never onto the disk."""

import gzip
import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from fedjax_geo.data._guard import blame
from fedjax_geo.data._source import DatasetCorrupt

_DEFLATE = 1032  # no deflate stream grows by more than this factor


class _Bounded(io.RawIOBase):
    """A file of which at most ``total`` bytes, and at most ``block`` bytes at once, are ever read."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile, total: int, block: int) -> None:
        self._file, self._total, self._block = file, total, block

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self._block:
            raise ValueError(f"a block of {size} bytes, more than the {self._block} expected at most")
        return self._file.read(size)

    def seek(self, position: int, whence: int = 0) -> int:
        if whence != 0 or not 0 <= position <= self._total:
            raise ValueError(f"a member at byte {position}, beyond the {self._total} expected at most")
        return self._file.seek(position)

    def tell(self) -> int:
        return self._file.tell()


def read_tar_gz(path: Path, limits: Mapping[str, int], *, total: int) -> dict[str, bytes]:
    """Read some members of a ``.tar.gz``.

    Args:
        path: the archive.
        limits: member -> largest size allowed; a name fits any member that ends with it after a slash.
        total: bytes of the whole archive, decompressed, to be read at most.

    Returns:
        Member -> content.

    Raises:
        DatasetCorrupt: no such archive, or a member is missing, too large or no plain file.
    """
    found: dict[str, bytes] = {}
    with blame(path), gzip.open(path) as stream:
        bounded = _Bounded(stream, total, max(*limits.values(), 1 << 16))
        with tarfile.open(fileobj=bounded, mode="r:") as archive:
            for member in archive:
                name = next((name for name in limits if f"/{member.name}".endswith(f"/{name}")), None)
                if name is None or name in found:
                    continue
                if not member.isreg() or member.issparse():
                    raise DatasetCorrupt(f"{path}: {member.name} is no plain file")
                if member.size > limits[name]:
                    raise DatasetCorrupt(
                        f"{path}: {member.name} claims {member.size} bytes, expected at most {limits[name]}"
                    )
                file = archive.extractfile(member)
                found[name] = b"" if file is None else file.read()
                if len(found[name]) != member.size:
                    raise DatasetCorrupt(f"{path}: {member.name} is truncated")
                if len(found) == len(limits):
                    break
    missing = [name for name in limits if name not in found]
    if missing:
        raise DatasetCorrupt(f"{path}: lacks {', '.join(missing)}")
    return found


def read_zip_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, where: str, limit: int) -> bytes:
    """Read one member of a zip archive.

    Raises:
        DatasetCorrupt: it is larger than ``limit``, claims more than its packed bytes can hold, or is damaged.
    """
    if info.file_size > limit:
        raise DatasetCorrupt(f"{where}: claims {info.file_size} bytes, expected at most {limit}")
    if info.file_size > _DEFLATE * (info.compress_size + 1):
        raise DatasetCorrupt(f"{where}: claims {info.file_size} bytes from {info.compress_size} packed ones")
    with blame(where), archive.open(info) as file:
        content = file.read(info.file_size + 1)
    if len(content) != info.file_size:
        raise DatasetCorrupt(f"{where}: holds {len(content)} bytes, expected {info.file_size}")
    return content
