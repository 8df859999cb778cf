"""Partitions inside natural groups, so that no client's examples come from two of them.

Two kinds of heterogeneity at once: the groups differ in what their examples look like (vendors, hospitals,
handwriting), the clients of one group in whatever the inner partition makes them differ in.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedjax_geo.data._parts import ClientParts, Partition, check_clients, describe, indices_by_class
from fedjax_geo.data._source import IntArray


@dataclass(frozen=True, eq=False)
class WithinGroups:
    """A partition made by ``within_groups``."""

    partition: Partition
    group_ids: IntArray | None = None

    def __str__(self) -> str:
        """For the provenance."""
        return f"within_groups({describe(self.partition)})"

    def clients_per_group(self, num_clients: int) -> list[int]:
        """How many of the clients each group gets, groups ascending by id."""
        sizes = np.unique(self._ids(), return_counts=True)[1]
        if num_clients < len(sizes):
            raise ValueError(f"num_clients={num_clients} must be at least one for each of the {len(sizes)} groups")
        shares = (num_clients - len(sizes)) * sizes / sizes.sum()  # beside the one that each has
        counts = np.floor(shares).astype(int)
        short = num_clients - len(sizes) - int(counts.sum())
        counts[np.argsort(counts - shares, kind="stable")[:short]] += 1  # largest remainders first
        return [1 + int(count) for count in counts]

    def __call__(self, labels: IntArray, num_clients: int, *, seed: int) -> Sequence[IntArray] | ClientParts:
        """Partition every group by itself; clients in the order of the groups' ids.

        Raises:
            ValueError: fewer clients than groups, a group id missing, or what the inner partition objects to.
        """
        ids = self._ids()
        if len(ids) != len(labels):
            raise ValueError(f"group_ids and labels must be equally many, got {len(ids)} and {len(labels)}")
        check_clients(len(labels), num_clients)
        groups = indices_by_class(ids)
        seeds = [int(stream.generate_state(1)[0]) for stream in np.random.SeedSequence(seed).spawn(len(groups))]
        cut = False
        uses: list[list[IntArray]] = [[], [], []]
        for members, count, own in zip(groups, self.clients_per_group(num_clients), seeds, strict=True):
            parts = self.partition(labels[members], count, seed=own)
            cut = isinstance(parts, ClientParts)
            for use, pieces in zip(uses, parts if cut else (parts, (), ()), strict=True):
                use += [members[piece] for piece in pieces]
        return ClientParts(*uses) if cut else uses[0]

    def _ids(self) -> IntArray:
        if self.group_ids is None:
            raise ValueError("group_ids is missing; only federate knows the data set's natural clients")
        return self.group_ids


def within_groups(partition: Partition, group_ids: IntArray | None = None) -> WithinGroups:
    """Apply a partition inside every natural group.

    A group's number of clients follows its number of examples, but every group has at least one. Each group
    has random numbers of its own.

    Args:
        partition: such as ``functools.partial(dirichlet, alpha=0.1)``.
        group_ids: [N], the group of each example. ``federate`` fills in the data set's natural clients.

    Returns:
        A partition.

    >>> from functools import partial
    >>> from fedjax_geo.data import iid, load_federated
    >>> data = load_federated("digits_forms", num_clients=28, partition=within_groups(iid))
    >>> data.client_names[:3]
    ('form 0, 0', 'form 0, 1', 'form 1, 0')
    >>> [len(part) for part in within_groups(iid, np.array([5, 5, 5, 5, 9, 9]))(np.zeros(6, int), 3, seed=0)]
    [2, 2, 2]
    """
    return WithinGroups(partition, group_ids)
