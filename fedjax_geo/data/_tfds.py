"""Letting tensorflow-datasets download and prepare a data set. Nothing else here uses the network."""

import importlib.util
import os
import threading
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from fedjax_geo.data._guard import need
from fedjax_geo.data._prepared import TFDS, read_prepared, tfds_dir
from fedjax_geo.data._source import DatasetNotFound, Source

_SECONDS = 6.0  # for telling whether there is a network


def download(name: str, data_dir: str | os.PathLike[str] | None) -> Source:
    """Let tensorflow-datasets download and prepare a data set, with its own progress bar, and read it.

    Raises:
        DatasetNotFound: tensorflow-datasets does not have it, or its server cannot be reached.
        DatasetCorrupt: what it prepared cannot be read.
        ImportError: tensorflow-datasets, or TensorFlow, with which it prepares, is not installed.
    """
    if name not in TFDS:
        raise DatasetNotFound(
            f"{name}: tensorflow-datasets does not have it, so it cannot be downloaded from here"
        )
    builder_name = TFDS[name].builder
    tfds = need("tensorflow_datasets", "tfds", "downloading")
    builder = tfds.builder(builder_name, data_dir=str(tfds_dir(data_dir)), file_format="array_record")
    url = next(iter(type(builder).url_infos), "https://storage.googleapis.com")
    if not reachable(url):
        host = urllib.parse.urlsplit(url).hostname
        raise DatasetNotFound(
            f"{name}: to be downloaded, but {host} cannot be reached within {_SECONDS:g} seconds"
        )
    if importlib.util.find_spec("tensorflow") is None:
        raise ImportError(
            f"{name}: tensorflow-datasets prepares it with TensorFlow: pip install 'fedjax_geo[tfds-prepare]'"
        )
    builder.download_and_prepare()
    source = read_prepared(name, data_dir)
    if source is None:
        raise DatasetNotFound(f"{name}: tensorflow-datasets prepared nothing in {tfds_dir(data_dir)}")
    return source


def reachable(url: str, seconds: float = _SECONDS) -> bool:
    """Whether a server answers in time, whatever it says."""
    answers: list[Any] = []

    def ask() -> None:
        request = urllib.request.Request(url, method="HEAD")
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answer:
                answers.append(answer.status)
        except urllib.error.HTTPError as error:
            answers.append(error.code)
        except (OSError, ValueError):
            pass

    thread = threading.Thread(target=ask, daemon=True)  # name resolution has no time limit of its own
    thread.start()
    thread.join(seconds)
    return bool(answers)
