"""Choosing among natural clients, and cutting their examples, as the CRAFT experiments on FEMNIST do.

CRAFT: Wang, Liu and Thuerey, 2026, arXiv 2605.21317. The random calls come in the order of the authors'
program; on the same rows (``femnist_parquet``) their seed gives their clients and their cut.
"""

import warnings
from dataclasses import replace

import numpy as np

from fedjax_geo.data._partition import by_group
from fedjax_geo.data._parts import ClientParts
from fedjax_geo.data._source import IntArray, Source

_TRAIN = 0.8


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
    if source.client_ids is None:
        raise ValueError("the data set has no natural clients to choose from")
    if num < 1:
        raise ValueError(f"num must be at least 1, got {num}")
    sizes = np.bincount(source.client_ids, minlength=len(source.client_names))
    fitting = np.flatnonzero((sizes >= max(min_examples, 1)) & (sizes <= max_examples))
    if not len(fitting):
        raise ValueError(f"no client has {min_examples} to {max_examples} examples")
    if len(fitting) < num:
        warnings.warn(f"only {len(fitting)} clients have {min_examples} to {max_examples} examples", stacklevel=2)
    chosen = np.random.default_rng(seed).choice(fitting, min(num, len(fitting)), replace=False)
    new_id = np.full(len(source.client_names), -1, np.int32)
    new_id[chosen] = np.arange(len(chosen))
    ids = new_id[source.client_ids]
    kept = np.flatnonzero(ids >= 0)
    return replace(
        source,
        images=source.images[kept],
        labels=source.labels[kept],
        num_train=int((kept < source.num_train).sum()),
        provenance=f"{source.provenance}, {len(chosen)} clients of {min_examples} to {max_examples} examples, "
        f"seed {seed}",
        client_ids=ids[kept],
        client_names=tuple(source.client_names[i] for i in chosen),
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
