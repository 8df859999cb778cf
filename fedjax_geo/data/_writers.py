"""Choosing among natural clients, and cutting their examples, as the experiments on FEMNIST do.

CRAFT: Wang, Liu and Thuerey, 2026, arXiv 2605.21317, draws writers of fitting size. The random calls come in the
order of the authors' program; on the same rows (``femnist_parquet``) their seed gives their clients and their cut.

LEAF: Caldas et al., 2018, arXiv 1812.01097, whose scripts FedVG's code uses, draws writers until a share of the
examples is reached, or parts seen from unseen writers. Its scripts work file by file with Python's generator, so
that their seeds give other writers.
"""

import warnings
from dataclasses import replace

import numpy as np

from fedjax_geo.data._partition import by_group
from fedjax_geo.data._parts import ClientParts
from fedjax_geo.data._source import IntArray, Source

_TRAIN = 0.8


def _sizes(source: Source) -> IntArray:
    """Examples of each natural client, [n].

    Raises:
        ValueError: there are none.
    """
    if source.client_ids is None:
        raise ValueError("the data set has no natural clients to choose from")
    return np.bincount(source.client_ids, minlength=len(source.client_names))


def _of_clients(source: Source, chosen: IntArray, how: str) -> Source:
    """The chosen clients' examples in the order they had, clients numbered in the order of ``chosen``."""
    new_id = np.full(len(source.client_names), -1, np.int32)
    new_id[chosen] = np.arange(len(chosen))
    ids = new_id[source.client_ids]
    kept = np.flatnonzero(ids >= 0)
    return replace(
        source.take(kept),
        provenance=f"{source.provenance}, {how}",
        client_ids=ids[kept],
        client_names=tuple(source.client_names[i] for i in chosen),
    )


def writers(source: Source, num: int, *, seed: int, min_examples: int = 0, max_examples: int = 500) -> Source:
    """A source of some of its natural clients, drawn among those of fitting size.

    Args:
        source: with ``client_ids``.
        num: clients wanted. If fewer qualify all are taken, with a warning, in random order.
        seed: of the choice.
        min_examples: a client qualifies with so many examples or more.
        max_examples: and with so many or fewer.

    Returns:
        The chosen clients' examples in the order they had, clients numbered in the order they were drawn.

    Raises:
        ValueError: no natural clients, ``num`` below one, or no client qualifies.

    >>> from fedjax_geo.data import load
    >>> chosen = writers(load("digits_forms"), 3, seed=0, max_examples=129)
    >>> chosen.client_names, len(chosen)
    (('form 10', 'form 12', 'form 8'), 378)
    """
    sizes = _sizes(source)
    if num < 1:
        raise ValueError(f"num must be at least 1, got {num}")
    fitting = np.flatnonzero((sizes >= max(min_examples, 1)) & (sizes <= max_examples))
    if not len(fitting):
        raise ValueError(f"no client has {min_examples} to {max_examples} examples")
    if len(fitting) < num:
        warnings.warn(f"only {len(fitting)} clients have {min_examples} to {max_examples} examples", stacklevel=2)
    chosen = np.random.default_rng(seed).choice(fitting, min(num, len(fitting)), replace=False)
    return _of_clients(
        source, chosen, f"{len(chosen)} clients of {min_examples} to {max_examples} examples, seed {seed}"
    )


def sample_writers(source: Source, fraction: float, *, seed: int, min_examples: int = 0) -> Source:
    """A source of whole natural clients, drawn until they hold a share of the examples: LEAF's sampling.

    Of the last one drawn as many examples are kept, at random, as are needed. Afterwards clients with too few
    examples are left out. FedVG's FEMNIST: ``sample_writers(source, 0.1, seed=seed)``, then
    ``federate(..., test_fraction=0.1)``.

    Args:
        source: with ``client_ids``.
        fraction: of all examples, rounded down.
        seed: of the choice.
        min_examples: of a client that stays.

    Returns:
        The chosen clients' examples in the order they had, clients numbered in the order they were drawn.

    Raises:
        ValueError: no natural clients, a fraction that is not above 0 and at most 1, or no client left.

    >>> from fedjax_geo.data import load
    >>> few = sample_writers(load("digits_forms"), 0.2, seed=0)
    >>> len(few), np.bincount(few.client_ids).tolist()
    (359, [130, 130, 99])
    """
    sizes = _sizes(source)
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must be above 0 and at most 1, got {fraction}")
    rng = np.random.default_rng(seed)
    wanted = int(fraction * len(source))
    order = rng.permutation(np.flatnonzero(sizes))
    drawn = order[np.cumsum(sizes[order]) - sizes[order] < wanted]
    spare = int(sizes[drawn].sum()) - wanted
    dropped = rng.permutation(np.flatnonzero(source.client_ids == drawn[-1]))[:spare] if len(drawn) else drawn
    thinned = source.take(np.setdiff1d(np.arange(len(source)), dropped))
    staying = drawn[_sizes(thinned)[drawn] >= max(min_examples, 1)]
    if not len(staying):
        raise ValueError(f"fraction={fraction} leaves no client of min_examples={min_examples}; take more")
    return _of_clients(
        thinned, staying, f"writers drawn up to {fraction:g} of the examples, {min_examples} at least, seed {seed}"
    )


def unseen_writers(source: Source, fraction: float, *, seed: int) -> tuple[Source, Source]:
    """Part the natural clients: those to train with, and a fraction of them that training never meets.

    Args:
        source: with ``client_ids``.
        fraction: of the clients to keep apart, rounded; at least one, and at least one stays.
        seed: of the choice.

    Returns:
        The seen and the unseen clients' examples, both in the order they had.

    Raises:
        ValueError: fewer than two natural clients, or a fraction that is not between 0 and 1.

    >>> from fedjax_geo.data import load
    >>> seen, unseen = unseen_writers(load("digits_forms"), 0.2, seed=0)
    >>> len(seen.client_names), unseen.client_names
    (11, ('form 0', 'form 2', 'form 3'))
    """
    present = np.flatnonzero(_sizes(source))
    if not 0 < fraction < 1 or len(present) < 2:
        raise ValueError(
            f"fraction must be between 0 and 1, of at least 2 natural clients, got {fraction} of {len(present)}"
        )
    apart = min(max(round(fraction * len(present)), 1), len(present) - 1)
    drawn = np.random.default_rng(seed).permutation(present)
    return (
        _of_clients(source, np.sort(drawn[apart:]), f"without {apart} unseen clients, seed {seed}"),
        _of_clients(source, np.sort(drawn[:apart]), f"the {apart} unseen clients, seed {seed}"),
    )


def split_writers(client_ids: IntArray, *, seed: int) -> ClientParts:
    """Cut every natural client's examples: shuffle, the first 80 % for training, at least one of them.

    ``assemble(chosen, split_writers(chosen.client_ids, seed=seed), client_names=chosen.client_names)``.

    Args:
        client_ids: [N].
        seed: of the shuffles, all of which one generator makes.

    Returns:
        Positions; a client of one example has no test examples.

    >>> train, test, _ = split_writers(np.array([0, 1, 0, 0, 0, 0]), seed=0)
    >>> train[0].tolist(), test[0].tolist()
    ([3, 5, 4, 0], [2])
    """
    rng = np.random.default_rng(seed)
    parts = [rng.permutation(part) for part in by_group(client_ids)]
    cuts = [max(1, int(_TRAIN * len(part))) for part in parts]
    return ClientParts(
        train=[part[:cut] for part, cut in zip(parts, cuts, strict=True)],
        test=[part[cut:] for part, cut in zip(parts, cuts, strict=True)],
    )
