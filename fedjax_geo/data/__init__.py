"""Federated data: real data sets from local files, partitions, and the index tables of a federation.

``load_federated`` goes the whole way in one call. ``load``, a partitioner, ``split_clients`` and ``assemble``
are its steps.
"""

from fedjax_geo.data._craft_dirichlet import craft_dirichlet
from fedjax_geo.data._dirichlet import dirichlet
from fedjax_geo.data._federated import Partition, assemble, federate, load_federated
from fedjax_geo.data._fedvg_dirichlet import fedvg_dirichlet
from fedjax_geo.data._partition import by_group, iid, shards
from fedjax_geo.data._parts import ClientParts
from fedjax_geo.data._prepare import Scale, scale
from fedjax_geo.data._source import DatasetCorrupt, DatasetNotFound, Source
from fedjax_geo.data._sources import SOURCES, load
from fedjax_geo.data._split import split_clients
from fedjax_geo.data._summary import PartitionSummary, label_counts, summarize
from fedjax_geo.data._validation import Validation, holdout, pooled_clients, server_holdout, surrogate

__all__ = [
    "SOURCES",
    "ClientParts",
    "DatasetCorrupt",
    "DatasetNotFound",
    "Partition",
    "PartitionSummary",
    "Scale",
    "Source",
    "Validation",
    "assemble",
    "by_group",
    "craft_dirichlet",
    "dirichlet",
    "federate",
    "fedvg_dirichlet",
    "holdout",
    "iid",
    "label_counts",
    "load",
    "load_federated",
    "pooled_clients",
    "scale",
    "server_holdout",
    "shards",
    "split_clients",
    "summarize",
    "surrogate",
]
