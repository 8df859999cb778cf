"""What partitioners return, and the checks and repairs they share."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedjax_geo.data._source import IntArray


class ClientParts(NamedTuple):
    """Positions of examples, already cut by use."""

    train: Sequence[IntArray]  # one array per client
    test: Sequence[IntArray]  # one array per client
    validation: Sequence[IntArray] = ()  # what the server gets, from each client or otherwise


# (labels [N], num_clients, *, seed) -> positions per client, or these already cut into train and test
Partition = Callable[..., Sequence[IntArray] | ClientParts]


def describe(function: Any) -> str:
    """A function in words, for the provenance: its name, and its arguments where it is a ``functools.partial``."""
    if isinstance(function, functools.partial):
        arguments = [*map(repr, function.args), *(f"{k}={v!r}" for k, v in function.keywords.items())]
        return f"{describe(function.func)}({', '.join(arguments)})"
    return getattr(function, "__name__", str(function))


def check_clients(num_examples: int, num_clients: int, min_examples: int = 0) -> None:
    """Raise a ValueError unless so many clients can hold at least ``min_examples`` each."""
    if num_clients < 1:
        raise ValueError(f"num_clients must be at least 1, got {num_clients}")
    if min_examples < 0:
        raise ValueError(f"min_examples must not be negative, got {min_examples}")
    if num_clients > num_examples:
        raise ValueError(f"num_clients={num_clients} must not exceed the {num_examples} examples")
    if num_clients * min_examples > num_examples:
        raise ValueError(
            f"min_examples={min_examples} is impossible for {num_clients} clients with {num_examples} examples; "
            f"use at most {num_examples // num_clients}"
        )


def check_alpha(alpha: float) -> None:
    """Raise a ValueError unless ``alpha`` is a Dirichlet concentration."""
    if not 0 < alpha < math.inf:
        raise ValueError(f"alpha must be positive and finite, got {alpha}")


def indices_by_class(labels: IntArray) -> list[IntArray]:
    """Positions of each label that occurs, in ascending label order."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


def shuffled(labels: IntArray, rng: np.random.Generator) -> IntArray:
    """All positions in random order; the labels in this order do not depend on the order of the rows."""
    return np.argsort(labels, kind="stable")[rng.permutation(len(labels))]


def cut_points(proportions: npt.NDArray[np.float64], size: int) -> IntArray:
    """Where to cut ``size`` examples for n clients, ``np.split`` style: [n - 1]; the last takes the remainder."""
    return np.floor(np.cumsum(proportions)[:-1] * size).astype(np.int64)


def top_up(parts: Sequence[IntArray], minimum: int) -> list[IntArray]:
    """Fill every part up to ``minimum`` from the end of the currently largest parts, which keep as many.

    Parts are filled in order; of equally large ones the first gives. There must be enough examples.
    """
    parts = list(parts)
    sizes = np.array([len(part) for part in parts])
    for client in np.flatnonzero(sizes < minimum):
        while sizes[client] < minimum:
            donor = sizes.argmax()
            moved = min(minimum - sizes[client], sizes[donor] - minimum)
            parts[client] = np.concatenate([parts[client], parts[donor][-moved:]])
            parts[donor] = parts[donor][:-moved]
            sizes[client] += moved
            sizes[donor] -= moved
    return parts
