"""Files damaged at random: a reader names the file at fault or returns a valid set, and nothing else."""

import numpy as np

from fedjax_geo.data import DatasetCorrupt, DatasetNotFound, Source


def damaged(content, rng):
    """The content with one or two of the damages that files suffer."""
    content = bytearray(content)
    for _ in range(rng.integers(1, 3)):
        n = len(content)
        # near the start as often as anywhere: headers are there
        at = int(rng.integers(0, max(min(n, 64) if rng.random() < 0.4 else n, 1)))
        length = int(rng.integers(1, 2 ** int(rng.integers(1, 10))))
        match rng.integers(0, 7):
            case 0:
                del content[at:]
            case 1:
                for where in rng.integers(0, max(n, 1), rng.integers(1, 9)):
                    if n:
                        content[where] ^= 1 << int(rng.integers(0, 8))
            case 2:
                if n:
                    content[at] ^= 1 << int(rng.integers(0, 8))
            case 3:
                content[at : at + length] = rng.bytes(length)
            case 4:
                del content[at : at + length]
            case 5:
                content[at:at] = content[: min(length, n)] if rng.random() < 0.5 else rng.bytes(length)
            case 6:
                content[at : at + 8] = (b"\xff" if rng.random() < 0.5 else b"\0") * min(8, n)
    return bytes(content)


def assert_valid(source):
    assert isinstance(source, Source)
    assert source.images.dtype == np.uint8 and source.images.ndim == 4
    assert source.labels.dtype == np.int32 and 0 <= source.num_train <= len(source)
    assert len(source.images) == len(source.labels)
    assert source.labels.size == 0 or 0 <= source.labels.min() <= source.labels.max() < source.num_classes
    if source.client_ids is not None:
        assert source.client_ids.dtype == np.int32


def odd(array, rng):
    """An array that is not quite what it should be: another shape, type or range."""
    array = np.asarray(array)
    match rng.integers(0, 9):
        case 0:
            kinds = [np.float32, np.float64, np.int8, np.uint8, np.uint16, np.int64, np.uint64, np.float16, bool]
            return array.astype(kinds[rng.integers(0, len(kinds))])
        case 1:
            return array[: rng.integers(0, len(array) + 1)] if array.ndim else array
        case 2:
            return array.reshape(-1)
        case 3:
            return array[..., None]
        case 4:
            return array.T
        case 5:
            return array.astype(np.float64) * rng.choice([-1.0, 2.0, 1e30, np.nan, np.inf])
        case 6:
            return np.concatenate([array, array]) if array.ndim else array
        case 7:
            return array.astype(np.int64) - int(rng.integers(-300, 300))
        case _:
            return np.zeros(rng.integers(0, 4, rng.integers(0, 6)), array.dtype)


def judges(read):
    """Read; whether something was noticed. Nothing but our own errors may be raised."""
    try:
        assert_valid(read())
    except (DatasetCorrupt, DatasetNotFound) as error:
        assert "\n" not in str(error)
        return True
    return False


def survives(read, folder, cases=1000, seed=0):
    """Damage the files below ``folder``, one or two at a time, and read; returns how often it was noticed."""
    rng = np.random.default_rng(seed)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    good = {path: path.read_bytes() for path in files}
    assert_valid(read())
    noticed = 0
    for _ in range(cases):
        chosen = {files[i] for i in rng.integers(0, len(files), rng.integers(1, 3))}
        for path in chosen:
            other = good[files[rng.integers(0, len(files))]]
            path.write_bytes(other if rng.random() < 0.05 else damaged(good[path], rng))
        noticed += judges(read)
        for path in chosen:
            path.write_bytes(good[path])
    assert_valid(read())
    return noticed
