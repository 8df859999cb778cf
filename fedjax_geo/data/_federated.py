"""From a data set and a partition to a federation."""

import os
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedjax_geo.data._partition import by_group
from fedjax_geo.data._parts import ClientParts, Partition, describe
from fedjax_geo.data._prepare import Prepare
from fedjax_geo.data._source import IntArray, Source
from fedjax_geo.data._sources import load
from fedjax_geo.data._split import split_clients
from fedjax_geo.data._validation import Validation, change, holdout, surrogate_examples
from fedjax_geo.data._within_groups import WithinGroups
from fedjax_geo.types import Examples, FederatedData, Split


def _table(parts: Sequence[IntArray]) -> Split:
    sizes: Any = np.array([len(part) for part in parts], np.int32)
    indices: Any = np.zeros((len(parts), max(sizes.max(), 1)), np.int32)
    indices[np.arange(indices.shape[1]) < sizes[:, None]] = np.concatenate(parts)
    return Split(indices, sizes)


def _concatenate(sets: list[Examples]) -> Examples | None:
    if not sets:
        return None
    x: Any = np.concatenate([examples.x for examples in sets])
    y: Any = np.concatenate([examples.y for examples in sets])
    return Examples(x, y)


def assemble(
    source: Source,
    parts: ClientParts,
    *,
    surrogate: Examples | None = None,
    client_names: Sequence[str] = (),
    prepare: Prepare | None = None,
    provenance: str = "",
) -> FederatedData:
    """Build a federation from explicit index lists.

    Args:
        source: the examples.
        parts: positions of each client's training and test examples, and of the server's validation examples.
        surrogate: examples from elsewhere, added to the server's validation set.
        client_names: n names; numbers when empty.
        prepare: how images become inputs; the source's own unless given.
        provenance: how the data was cut, appended to where it came from.

    Returns:
        A federation; its examples are the source's own arrays, not copies.

    Raises:
        ValueError: no clients, lists of different lengths, a position used twice or out of range, or a ``prepare``
            that cannot be hashed.
    """
    n = len(parts.train)
    names = tuple(client_names) or tuple(f"client {i}" for i in range(n))
    if n < 1 or len(parts.test) != n or len(names) != n:
        raise ValueError(
            f"training parts, test parts and names must be equally many and at least one, "
            f"got {n}, {len(parts.test)} and {len(names)}"
        )
    used = np.concatenate([*parts.train, *parts.test, *parts.validation])
    if used.size and not (used.min() >= 0 and used.max() < len(source)):
        raise ValueError(f"positions must be in [0, {len(source)}), got {used.min()} to {used.max()}")
    if len(np.unique(used)) != len(used):
        raise ValueError("some examples are in two parts; each belongs to one client and one use")

    prepare = source.prepare if prepare is None else prepare
    if not (callable(prepare) and isinstance(prepare, Hashable)):
        raise ValueError(f"prepare must be a hashable function, such as scale(255), got {prepare!r}")

    sets = [] if surrogate is None else [surrogate]
    if any(len(part) for part in parts.validation):
        sets.append(source.examples(np.concatenate(parts.validation)))
    return FederatedData(
        examples=source.examples(),
        train=_table(parts.train),
        test=_table(parts.test),
        validation=_concatenate(sets),
        num_classes=source.num_classes,
        prepare=prepare,
        client_names=names,
        provenance="; ".join(filter(None, (source.provenance, provenance))),
    )


def federate(
    source: Source,
    partition: Partition | None = None,
    *,
    num_clients: int | None = None,
    test_fraction: float | None = None,
    validation: Validation | None = None,
    prepare: Prepare | None = None,
    seed: int = 0,
) -> FederatedData:
    """Hold out, partition, cut: the whole way from a data set to a federation.

    Args:
        source: the data set.
        partition: ``(labels, num_clients, *, seed)`` -> positions per client, for example
            ``functools.partial(dirichlet, alpha=0.1)``. None takes the natural clients, and
            ``within_groups`` of a partition divides each of these.
        num_clients: n; not needed for natural clients.
        test_fraction: of each client's examples; 0.2 unless given. Partitions that bring their own test
            examples, such as ``craft_dirichlet``, leave no choice.
        validation: ``server_holdout(f)``, ``pooled_clients(f)`` or ``surrogate(source)``, perhaps changed, as
            by ``long_tailed``; None for no validation set.
        prepare: how images become inputs, for example ``in_order(crop_flip(), source.prepare)``; the source's
            own unless given.
        seed: of the holdout, the partition, the cut and the changes to the validation set.

    Returns:
        A federation whose clients share what was not held out.

    Raises:
        ValueError: arguments that do not fit together or the data.
    """
    validation = validation or Validation()
    how = "natural clients"
    kept, held = holdout(source, validation.held_out, seed=seed)
    names: Sequence[str] = ()
    if partition is None:
        if source.client_ids is None:
            raise ValueError("the data set has no natural clients; give partition and num_clients")
        ids = source.client_ids[kept]
        names = [source.client_names[i] for i in np.unique(ids)]
        if num_clients not in (None, len(names)):
            raise ValueError(f"num_clients={num_clients}, but there are {len(names)} natural clients")
        parts: Sequence[IntArray] | ClientParts = by_group(ids)
    else:
        if num_clients is None:
            raise ValueError("num_clients is needed with a partition")
        how = describe(partition)
        if isinstance(partition, WithinGroups) and partition.group_ids is None:
            if source.client_ids is None:
                raise ValueError("the data set has no natural clients to partition within; give group_ids")
            ids = source.client_ids[kept]
            partition = replace(partition, group_ids=ids)
            counts = partition.clients_per_group(num_clients)
            names = [
                f"{source.client_names[group]}, {k}"
                for group, count in zip(np.unique(ids), counts, strict=True)
                for k in range(count)
            ]
        parts = partition(source.labels[kept], num_clients, seed=seed)

    cut = "the partition's own test examples"
    if not isinstance(parts, ClientParts):
        test_fraction = 0.2 if test_fraction is None else test_fraction
        cut = f"{test_fraction:g} of each for testing"
        parts = split_clients(
            parts, test_fraction=test_fraction, validation_fraction=validation.from_clients, seed=seed
        )
    elif test_fraction is not None or validation.from_clients:
        raise ValueError(
            "the partition brings its own test examples; give neither test_fraction nor pooled_clients"
        )
    train, test, pooled = ([kept[part] for part in use] for use in parts)
    inputs = "" if prepare is None else f"; inputs: {describe(prepare)}"
    data = assemble(
        source,
        ClientParts(train, test, [*pooled, held]),
        surrogate=surrogate_examples(validation.surrogate, source) if validation.surrogate else None,
        client_names=names,
        prepare=prepare,
        provenance=f"{how}, {len(train)} clients, {cut}, seed {seed}; validation: {validation}{inputs}",
    )
    return replace(data, validation=change(data.validation, validation, source, seed=seed))


def load_federated(
    name: str,
    *,
    num_clients: int | None = None,
    partition: Partition | None = None,
    validation: Validation | None = None,
    test_fraction: float | None = None,
    prepare: Prepare | None = None,
    seed: int = 0,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = False,
) -> FederatedData:
    """Load a data set and federate it; see ``load`` and ``federate`` for the arguments.

    Raises:
        ValueError: an unknown name, or arguments that do not fit together or the data.
        DatasetNotFound: the files are in none of the places searched.
        DatasetCorrupt: a file is damaged or not the expected one.
        ImportError: a package needed for this data set is not installed.

    >>> from functools import partial
    >>> from fedjax_geo.data import dirichlet, load_federated
    >>> load_federated("digits_forms").num_clients
    14
    >>> data = load_federated("digits_forms", num_clients=20, partition=partial(dirichlet, alpha=0.1))
    >>> int(data.train.sizes.sum() + data.test.sizes.sum())
    1797
    """
    return federate(
        load(name, data_dir, download=download),
        partition,
        num_clients=num_clients,
        test_fraction=test_fraction,
        validation=validation,
        prepare=prepare,
        seed=seed,
    )
