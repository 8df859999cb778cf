"""Where the server's validation set comes from.

Devkota et al., 2026, arXiv 2602.21399 (FedVG), validate on what they cut from every client, and on other data
sets in place of it. Examples held out before the clients get theirs are the third, independent choice.
"""

from dataclasses import dataclass

import numpy as np

from fedjax_geo.data._source import IntArray, Source
from fedjax_geo.types import Examples


@dataclass(frozen=True)
class Validation:
    """What the server's validation set is made of; see the three functions that make one."""

    held_out: float = 0.0  # fraction of the data set, kept from all clients
    from_clients: float = 0.0  # fraction of each client's examples
    surrogate: Source | None = None  # all of another data set

    def __str__(self) -> str:
        """One line for the provenance."""
        parts = [
            f"{self.held_out:g} of the examples, held out before partitioning" if self.held_out else "",
            f"{self.from_clients:g} of each client's examples" if self.from_clients else "",
            self.surrogate.provenance if self.surrogate else "",
        ]
        return " and ".join(filter(None, parts)) or "none"


def _fraction(value: float) -> float:
    if not 0 <= value < 1:
        raise ValueError(f"fraction must be in [0, 1), got {value}")
    return value


def server_holdout(fraction: float) -> Validation:
    """A stratified fraction of the data set that no client ever holds.

    Raises:
        ValueError: a fraction outside [0, 1).
    """
    return Validation(held_out=_fraction(fraction))


def pooled_clients(fraction: float) -> Validation:
    """The union of a fraction of every client's examples, on which the clients do not train.

    Raises:
        ValueError: a fraction outside [0, 1).
    """
    return Validation(from_clients=_fraction(fraction))


def surrogate(source: Source) -> Validation:
    """All examples of another data set with the same classes in the same order, image shape and pixel scale."""
    return Validation(surrogate=source)


def holdout(source: Source, fraction: float, *, seed: int) -> tuple[IntArray, IntArray]:
    """Set examples aside, each class (of each natural client, where these are known) in proportion.

    The total is ``fraction`` of all, rounded; a stratum misses its share by less than one.

    Args:
        source: N examples.
        fraction: to set aside.
        seed: of the choice.

    Returns:
        Positions of the remaining and of the held out examples, both ascending; together all N.

    Raises:
        ValueError: a fraction outside [0, 1).

    >>> from fedjax_geo.data import load
    >>> [len(part) for part in holdout(load("digits_forms"), 0.1, seed=0)]
    [1617, 180]
    """
    rng = np.random.default_rng([seed, 1])  # not the partition's stream
    clients = np.zeros_like(source.labels) if source.client_ids is None else source.client_ids
    strata = clients.astype(np.int64) * source.num_classes + source.labels
    _, stratum, counts = np.unique(strata, return_inverse=True, return_counts=True)
    share = _fraction(fraction) * counts
    take = np.floor(share).astype(np.int64)
    short = round(fraction * len(source)) - int(take.sum())
    take[np.lexsort((rng.random(len(take)), take - share))[:short]] += 1  # largest remainders first

    order = rng.permutation(len(source))
    order = order[np.argsort(stratum[order], kind="stable")]
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    held = np.zeros(len(source), bool)
    held[order] = rank < np.repeat(take, counts)
    return np.flatnonzero(~held), np.flatnonzero(held)


def surrogate_examples(other: Source, source: Source) -> Examples:
    """Examples of ``other`` for a model of ``source``.

    Raises:
        ValueError: images, pixel scale or classes do not fit.
    """
    for what, theirs, ours in (
        ("image shape", other.images.shape[1:], source.images.shape[1:]),
        ("largest pixel value", other.prepare.divisor, source.prepare.divisor),
        ("classes", other.class_names, source.class_names),
    ):
        if theirs != ours:
            raise ValueError(f"the surrogate's {what}: {theirs}, the clients': {ours}; they must be equal")
    return other.examples()
