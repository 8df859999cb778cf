"""Federated data: real data sets from local files, partitions, and the index tables of a federation.

``load_federated`` goes the whole way in one call. ``load``, a partitioner, ``split_clients`` and ``assemble``
are its steps. ``load`` reads every data set by its name in ``SOURCES``; those with options of their own are
functions beside it, too.
"""

from fedjax_geo.data._covid19_radiography import covid19_radiography
from fedjax_geo.data._craft_dirichlet import craft_dirichlet
from fedjax_geo.data._dirichlet import dirichlet
from fedjax_geo.data._federated import Partition, assemble, federate, load_federated
from fedjax_geo.data._fedvg_dirichlet import fedvg_dirichlet
from fedjax_geo.data._image_folder import image_folder
from fedjax_geo.data._medmnist import medmnist
from fedjax_geo.data._partition import by_group, iid, shards
from fedjax_geo.data._parts import ClientParts
from fedjax_geo.data._prepare import Scale, scale
from fedjax_geo.data._source import DatasetCorrupt, DatasetNotFound, Source
from fedjax_geo.data._sources import SOURCES, load
from fedjax_geo.data._split import split_clients
from fedjax_geo.data._summary import PartitionSummary, label_counts, summarize
from fedjax_geo.data._validation import Validation, holdout, pooled_clients, server_holdout, surrogate
from fedjax_geo.data._within_groups import WithinGroups, within_groups
from fedjax_geo.data._writers import split_writers, writers

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
    "WithinGroups",
    "assemble",
    "by_group",
    "covid19_radiography",
    "craft_dirichlet",
    "dirichlet",
    "federate",
    "fedvg_dirichlet",
    "holdout",
    "iid",
    "image_folder",
    "label_counts",
    "load",
    "load_federated",
    "medmnist",
    "pooled_clients",
    "scale",
    "server_holdout",
    "shards",
    "split_clients",
    "split_writers",
    "summarize",
    "surrogate",
    "within_groups",
    "writers",
]
