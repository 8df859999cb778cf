"""Writing examples as a folder of tensorflow-datasets, without it and without TensorFlow.

Such a folder holds the examples as tf.train.Example messages, in shards of array_record or TFRecord files, beside
``dataset_info.json`` and ``features.json``. Images are PNG files. Beside them lies ``prepared.json``, ours, by
which a folder written before is known again.
"""

import hashlib
import importlib
import importlib.util
import io
import json
import os
import shutil
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fedjax_geo.data._tfrecord import masked_crc  # the writing half of what is read there

Form = Literal["array_record", "tfrecord"]
MANIFEST = "prepared.json"

_SHARD = 1 << 28  # bytes of images as stored, in one file
_FEATURE = "tensorflow_datasets.core.features"


class Table(NamedTuple):
    """What is to be written.

    Attributes:
        name: of the data set for tensorflow-datasets, ``mnist`` or ``emnist/letters``.
        version: three numbers with dots between.
        about: where the examples came from.
        licence: of the examples.
        images: uint8 [N, height, width, 1 or 3].
        labels: feature -> whole numbers [N]; the first one is the label.
        names: feature -> names of these numbers, or how many there are.
        parts: part such as ``train`` -> positions, ascending.
        ids: whether each example is to have an ``id``, its part and number, as CIFAR has.
    """

    name: str
    version: str
    about: str
    licence: str
    images: npt.NDArray[np.uint8]
    labels: Mapping[str, npt.NDArray[np.integer[Any]]]
    names: Mapping[str, tuple[str, ...] | int]
    parts: Mapping[str, range]
    ids: bool = False


class Manifest(NamedTuple):
    """What ``prepared.json`` says."""

    content: str  # digest of the examples
    form: str
    files: dict[str, str]  # name -> digest


def best_form() -> Form:
    """array_record, which tensorflow-datasets reads without TensorFlow, if its package is installed."""
    return "array_record" if importlib.util.find_spec("array_record") else "tfrecord"


def write(table: Table, root: Path, form: Form | None = None) -> tuple[Path, bool]:
    """Write a folder ``root/name/version``, whole or not at all.

    Args:
        table: what to write.
        root: what tensorflow-datasets calls ``data_dir``.
        form: of the files; None: ``best_form()``, or what is there.

    Returns:
        The folder, and whether it was written now; not if it is there with the same content.

    Raises:
        FileExistsError: something else is there, or the same and damaged, or in another form.
        ImportError: Pillow, or array_record if it is asked for, is not installed.
        ValueError: images that are neither grey nor of three channels.
    """
    if table.images.ndim != 4 or table.images.shape[-1] not in (1, 3):
        raise ValueError(f"images must be [N, height, width, 1 or 3], got {list(table.images.shape)}")
    folder = root / table.name / table.version
    content = _digest(table)
    if _is_same(folder, content, form):
        return folder, False
    aside = folder.with_name(f".writing-{table.version}-{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        _write(table, aside, form or best_form(), content)
        try:
            aside.rename(folder)
        except OSError:
            if not _is_same(folder, content, form):  # written by somebody else in the meantime
                raise
            return folder, False
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder, True


def _is_same(folder: Path, content: str, form: Form | None) -> bool:
    """Whether the folder holds this content, whole."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    rule = "remove it or choose another --out; nothing is overwritten"
    found = _manifest(folder)
    if found is None:
        raise FileExistsError(f"{folder} was not written by this tool: {rule}")
    if found.content != content:
        raise FileExistsError(f"{folder} holds other examples: {rule}")
    broken = [name for name, digest in found.files.items() if _file_digest(folder / name) != digest]
    if broken:
        raise FileExistsError(f"{folder} is damaged ({', '.join(broken[:3])}): {rule}")
    if form not in (None, found.form):
        raise FileExistsError(f"{folder} holds these examples as {found.form}, not {form}: {rule}")
    return True


def _manifest(folder: Path) -> Manifest | None:
    try:
        return Manifest(**json.loads((folder / MANIFEST).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _file_digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _digest(table: Table) -> str:
    """Of everything that a reader sees."""
    parts = {part: [positions.start, positions.stop] for part, positions in table.parts.items()}
    facts: list[Any] = [table.name, table.images.shape, dict(table.names), parts, table.ids]
    digest = hashlib.sha256(json.dumps(facts).encode())
    arrays: list[npt.NDArray[Any]] = [table.images, *(np.asarray(y, np.int64) for y in table.labels.values())]
    for array in arrays:
        for start in range(0, len(array), 4096):
            digest.update(np.ascontiguousarray(array[start : start + 4096]).data)
    return digest.hexdigest()


def _write(table: Table, folder: Path, form: Form, content: str) -> None:
    stem = table.name.partition("/")[0]
    count = max(1, -(-table.images.nbytes // _SHARD))
    splits = []
    for part, positions in table.parts.items():
        shards = [positions[len(positions) * i // count : len(positions) * (i + 1) // count] for i in range(count)]
        sizes = [
            _write_shard(folder / f"{stem}-{part}.{form}-{i:05}-of-{count:05}", form, _records(table, part, shard))
            for i, shard in enumerate(shards)
        ]
        splits.append(
            {
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
                "name": part,
                "numBytes": str(sum(sizes)),
                "shardLengths": [str(len(shard)) for shard in shards],
            }
        )
    name, _, config = table.name.partition("/")
    keys = ["image", next(iter(table.labels))]
    info = {
        "name": name,
        **({"configName": config} if config else {}),
        "version": table.version,
        "description": table.about,
        "redistributionInfo": {"license": table.licence},
        "disableShuffling": True,
        "fileFormat": form,
        "splits": splits,
        "supervisedKeys": {"tuple": {"items": [{"featureKey": key} for key in keys]}},
    }
    (folder / "dataset_info.json").write_text(json.dumps(info, indent=2) + "\n", "utf-8")
    (folder / "features.json").write_text(json.dumps(_features(table), indent=2) + "\n", "utf-8")
    for feature, names in table.names.items():
        if isinstance(names, tuple):
            (folder / f"{feature}.labels.txt").write_text("\n".join(names) + "\n", "utf-8")
    files = {path.name: str(_file_digest(path)) for path in sorted(folder.iterdir())}
    manifest = Manifest(content, form, files)._asdict()
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")


def _features(table: Table) -> dict[str, Any]:
    """``features.json``."""
    shape = {"dimensions": [str(size) for size in table.images.shape[1:]]}
    features: dict[str, Any] = {
        "image": {
            "pythonClassName": f"{_FEATURE}.image_feature.Image",
            "image": {"dtype": "uint8", "shape": shape, "encodingFormat": "png"},
        }
    }
    for feature, names in table.names.items():
        features[feature] = {
            "pythonClassName": f"{_FEATURE}.class_label_feature.ClassLabel",
            "classLabel": {"numClasses": str(names if isinstance(names, int) else len(names))},
        }
    if table.ids:
        features["id"] = {"pythonClassName": f"{_FEATURE}.text_feature.Text", "text": {}}
    return {
        "pythonClassName": f"{_FEATURE}.features_dict.FeaturesDict",
        "featuresDict": {"features": features},
    }


def _records(table: Table, part: str, positions: range) -> Iterator[bytes]:
    """One tf.train.Example for each position."""
    try:
        pillow = importlib.import_module("PIL.Image")
    except ImportError as error:
        raise ImportError("writing images needs Pillow: pip install 'fedjax_geo[images]'", name="PIL") from error
    first = table.parts[part].start
    for i in positions:
        pixels, png = table.images[i], io.BytesIO()
        pillow.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(png, "PNG")
        values: dict[str, bytes | int] = {"image": png.getvalue()}
        values |= {feature: int(labels[i]) for feature, labels in table.labels.items()}
        if table.ids:
            values["id"] = f"{part}_{i - first:05}".encode()
        yield _example(values)


def _write_shard(path: Path, form: Form, records: Iterator[bytes]) -> int:
    """One file; returns the bytes of its records."""
    total = 0
    if form == "array_record":
        module = importlib.import_module("array_record.python.array_record_module")
        writer = module.ArrayRecordWriter(str(path), "group_size:1")
        for record in records:
            writer.write(record)
            total += len(record)
        writer.close()
        return total
    with path.open("wb") as file:
        for record in records:
            length = struct.pack("<Q", len(record))
            crcs = (struct.pack("<I", masked_crc(content)) for content in (length, record))
            file.write(length + next(crcs) + record + next(crcs))
            total += len(record)
    return total


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _example(values: Mapping[str, bytes | int]) -> bytes:
    """A tf.train.Example of single texts and whole numbers, none of them negative."""
    entries = b""
    for name, value in values.items():
        listed = _field(1, value) if isinstance(value, bytes) else _field(1, _varint(value))
        feature = _field(1 if isinstance(value, bytes) else 3, listed)
        entries += _field(1, _field(1, name.encode()) + _field(2, feature))
    return _field(1, entries)
