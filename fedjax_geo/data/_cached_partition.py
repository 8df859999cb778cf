"""Partitions that are drawn once: schemes that redraw until they are content can take minutes.

An entry of the cache is found by the scheme, its arguments, the number of clients, the seed, the labels, and the
versions of this library and of NumPy, whose generators may change.
"""

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import fedjax_geo
from fedjax_geo.data._cache import Arrays, kept
from fedjax_geo.data._parts import ClientParts, Partition, describe
from fedjax_geo.data._source import IntArray


@dataclass(frozen=True, eq=False)
class CachedPartition:
    """A partition made by ``cached_partition``."""

    partition: Partition

    def __str__(self) -> str:
        """For the provenance, which does not depend on the cache."""
        return describe(self.partition)

    def __call__(self, labels: IntArray, num_clients: int, *, seed: int) -> Sequence[IntArray] | ClientParts:
        """The partition, from the cache if it was made before."""
        labels = np.ascontiguousarray(labels, np.int64)
        versions = f"{fedjax_geo.__version__} {np.__version__}"
        digest = hashlib.sha256(f"{_identity(self.partition)} {num_clients} {seed} {versions} ".encode())
        digest.update(labels.data)
        arrays = kept(
            f"partition-{digest.hexdigest()[:24]}",
            lambda: _pack(self.partition(labels, num_clients, seed=seed)),
        )
        return _unpack(arrays)


def cached_partition(partition: Partition) -> CachedPartition:
    """A partition that is kept in the cache, beside decoded data sets, and read from there the next time.

    Args:
        partition: a function by name, or a ``functools.partial`` of one with plain arguments, such as
            ``partial(fedvg_dirichlet, alpha=0.05, max_attempts=20_000)``. Inside groups:
            ``within_groups(cached_partition(...))``.

    Returns:
        A partition that gives the same clients.

    Raises:
        ValueError: a function or an argument that could not be recognised the next time.

    >>> from fedjax_geo.data import craft_dirichlet
    >>> print(cached_partition(functools.partial(craft_dirichlet, alpha=0.1)))
    craft_dirichlet(alpha=0.1)
    """
    _identity(partition)
    return CachedPartition(partition)


def _identity(function: Any) -> str:
    """What a scheme is called, and its arguments, such that equal texts mean equal functions."""
    if isinstance(function, functools.partial):
        arguments = [*function.args, *(item for pair in sorted(function.keywords.items()) for item in pair)]
        for value in arguments:
            if not isinstance(value, int | float | str | None):
                raise ValueError(f"arguments of a cached partition must be numbers or text, got {value!r}")
        return f"{_identity(function.func)} {len(function.args)} {arguments!r}"
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '<')}"
    if "<" in name:
        raise ValueError(
            f"a cached partition must be a function of a module, or a functools.partial of one, got {function!r}"
        )
    return name


def _pack(parts: Sequence[IntArray] | ClientParts) -> Arrays:
    uses = parts if isinstance(parts, ClientParts) else (parts,)
    pieces = [piece for use in uses for piece in use]
    return {
        "positions": np.concatenate(pieces),
        "sizes": np.array([len(piece) for piece in pieces]),
        "uses": np.array([len(use) for use in uses]),
    }


def _unpack(arrays: Arrays) -> Sequence[IntArray] | ClientParts:
    pieces = np.split(np.array(arrays["positions"]), np.cumsum(arrays["sizes"])[:-1])
    uses = [
        pieces[end - count : end] for end, count in zip(np.cumsum(arrays["uses"]), arrays["uses"], strict=True)
    ]
    return ClientParts(*uses) if len(uses) > 1 else uses[0]
