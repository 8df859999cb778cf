"""Where the server's validation set comes from.

Devkota et al., 2026, arXiv 2602.21399 (FedVG), validate on what they cut from every client, and on other data
sets in place of it. Examples held out before the clients get theirs are the third, independent choice.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedjax_geo.data._source import IntArray, Source
from fedjax_geo.types import Examples

# (examples, the clients' source, generator) -> examples; says in words what it does when asked for its str
Change = Callable[[Examples, Source, np.random.Generator], Examples]


@dataclass(frozen=True)
class Validation:
    """What the server's validation set is made of; see the three functions that make one."""

    held_out: float = 0.0  # fraction of the data set, kept from all clients
    from_clients: float = 0.0  # fraction of each client's examples
    surrogate: Source | None = None  # all of another data set
    changes: tuple[Change, ...] = ()  # made to it before the run, one after another

    def __str__(self) -> str:
        """One line for the provenance."""
        parts = [
            f"{self.held_out:g} of the examples, held out before partitioning" if self.held_out else "",
            f"{self.from_clients:g} of each client's examples" if self.from_clients else "",
            self.surrogate.provenance if self.surrogate else "",
        ]
        return ", ".join([" and ".join(filter(None, parts)) or "none", *map(str, self.changes)])


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
    held = stratified(strata, _fraction(fraction), rng)
    return np.flatnonzero(~held), np.flatnonzero(held)


def stratified(strata: IntArray, fraction: float, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """A fraction of the places, rounded; every stratum in proportion, up to less than one; bool [N]."""
    _, stratum, counts = np.unique(strata, return_inverse=True, return_counts=True)
    share = fraction * counts
    take = np.floor(share).astype(np.int64)
    short = round(fraction * len(strata)) - int(take.sum())
    take[np.lexsort((rng.random(len(take)), take - share))[:short]] += 1  # largest remainders first
    return pick(stratum, take, rng)


def pick(stratum: IntArray, take: IntArray, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """``take[s]`` of the places of each stratum s, at random, all if there are fewer; bool [N]."""
    counts = np.bincount(stratum, minlength=len(take))
    order = rng.permutation(len(stratum))
    order = order[np.argsort(stratum[order], kind="stable")]
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    picked = np.zeros(len(stratum), bool)
    picked[order] = rank < np.repeat(take, counts)
    return picked


def change(examples: Examples | None, validation: Validation, source: Source, *, seed: int) -> Examples | None:
    """The server's examples, after what the validation setting has made of them."""
    for number, one in enumerate(validation.changes, 2):
        if examples is not None:
            examples = one(examples, source, np.random.default_rng([seed, number]))
    return examples


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
