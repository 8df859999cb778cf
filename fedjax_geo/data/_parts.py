"""What partitioners return, and the checks and repairs they share."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_geo.data._source import IntArray


class ClientParts(NamedTuple):
    """Positions of examples, already cut by use."""

    train: Sequence[IntArray]  # one array per client
    test: Sequence[IntArray]  # one array per client
    validation: Sequence[IntArray] = ()  # what the server gets, from each client or otherwise


def check_clients(num_examples: int, num_clients: int, min_examples: int = 0) -> None:
    """Raise a ValueError unless so many clients can hold at least ``min_examples`` each."""
    if num_clients < 1:
        raise ValueError(f"num_clients must be at least 1, got {num_clients}")
    if min_examples < 0:
        raise ValueError(f"min_examples must not be negative, got {min_examples}")
    if num_clients > num_examples:
        raise ValueError(
            f"num_clients={num_clients} exceeds the {num_examples} examples; use at most as many"
        )
    if num_clients * min_examples > num_examples:
        raise ValueError(
            f"min_examples={min_examples} is impossible with {num_examples} examples for {num_clients} clients; "
            f"at most {num_examples // num_clients}"
        )


def check_alpha(alpha: float) -> None:
    """Raise a ValueError unless ``alpha`` is a Dirichlet concentration."""
    if not 0 < alpha < math.inf:
        raise ValueError(f"alpha must be positive and finite, got {alpha}")


def indices_by_class(labels: IntArray) -> list[IntArray]:
    """Positions of each label that occurs, in ascending label order."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


def top_up(parts: Sequence[IntArray], minimum: int) -> list[IntArray]:
    """Fill every part up to ``minimum``, one example at a time from the end of the largest part.

    Clients are filled in order; among equally large parts the first one gives.
    """
    sizes = np.array([len(part) for part in parts])
    lists: dict[int, list[int]] = {}  # only the parts that change

    def members(client: int) -> list[int]:
        return lists.setdefault(client, parts[client].tolist())

    for client in np.flatnonzero(sizes < minimum).tolist():
        while sizes[client] < minimum:
            donor = int(sizes.argmax())
            members(client).append(members(donor).pop())
            sizes[client] += 1
            sizes[donor] -= 1
    return [np.array(lists[i], dtype=part.dtype) if i in lists else part for i, part in enumerate(parts)]
