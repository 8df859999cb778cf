"""Federated data: real data sets from local files, partitions, and the index tables of a federation.

``load_federated`` goes the whole way in one call. ``load``, a partitioner, ``split_clients`` and ``assemble``
are its steps. ``load`` reads every data set by its name in ``SOURCES``; those with options of their own are
functions beside it, too.
"""

from fedjax_geo.data._augment import CropFlip, crop_flip
from fedjax_geo.data._cached_partition import CachedPartition, cached_partition
from fedjax_geo.data._classes_per_client import classes_per_client
from fedjax_geo.data._covid19_radiography import covid19_radiography
from fedjax_geo.data._craft_dirichlet import craft_dirichlet
from fedjax_geo.data._dirichlet import dirichlet
from fedjax_geo.data._feature_skew import Shift, contrast, feature_skew, rotation
from fedjax_geo.data._federated import assemble, federate, load_federated
from fedjax_geo.data._fedvg_dirichlet import fedvg_dirichlet
from fedjax_geo.data._image_folder import image_folder
from fedjax_geo.data._inputs import (
    CRAFT_CIFAR10_INPUTS,
    CRAFT_CIFAR100_INPUTS,
    CRAFT_FEMNIST_INPUTS,
    FEDVG_INPUTS,
)
from fedjax_geo.data._medmnist import medmnist
from fedjax_geo.data._partition import by_group, iid, shards
from fedjax_geo.data._parts import ClientParts, Partition
from fedjax_geo.data._prepare import InOrder, Prepare, Scale, in_order, scale
from fedjax_geo.data._quantity_skew import quantity_skew
from fedjax_geo.data._relabel import CIFAR100_AS_CIFAR10, ISIC2019_AS_DERMAMNIST, STL10_AS_CIFAR10, relabelled
from fedjax_geo.data._resize import Resize, as_rgb, padded, resize, resized
from fedjax_geo.data._source import DatasetCorrupt, DatasetNotFound, Source
from fedjax_geo.data._sources import SOURCES, load
from fedjax_geo.data._split import split_clients
from fedjax_geo.data._summary import PartitionSummary, label_counts, summarize
from fedjax_geo.data._validation import Validation, holdout, pooled_clients, server_holdout, surrogate
from fedjax_geo.data._validation_changes import long_tailed, noisy, subsampled
from fedjax_geo.data._within_groups import WithinGroups, within_groups
from fedjax_geo.data._writers import sample_writers, split_writers, unseen_writers, writers

__all__ = [
    "CIFAR100_AS_CIFAR10",
    "CRAFT_CIFAR10_INPUTS",
    "CRAFT_CIFAR100_INPUTS",
    "CRAFT_FEMNIST_INPUTS",
    "FEDVG_INPUTS",
    "ISIC2019_AS_DERMAMNIST",
    "SOURCES",
    "STL10_AS_CIFAR10",
    "CachedPartition",
    "ClientParts",
    "CropFlip",
    "DatasetCorrupt",
    "DatasetNotFound",
    "InOrder",
    "Partition",
    "PartitionSummary",
    "Prepare",
    "Resize",
    "Scale",
    "Shift",
    "Source",
    "Validation",
    "WithinGroups",
    "as_rgb",
    "assemble",
    "by_group",
    "cached_partition",
    "classes_per_client",
    "contrast",
    "covid19_radiography",
    "craft_dirichlet",
    "crop_flip",
    "dirichlet",
    "feature_skew",
    "federate",
    "fedvg_dirichlet",
    "holdout",
    "iid",
    "image_folder",
    "in_order",
    "label_counts",
    "load",
    "load_federated",
    "long_tailed",
    "medmnist",
    "noisy",
    "padded",
    "pooled_clients",
    "quantity_skew",
    "relabelled",
    "resize",
    "resized",
    "rotation",
    "sample_writers",
    "scale",
    "server_holdout",
    "shards",
    "split_clients",
    "split_writers",
    "subsampled",
    "summarize",
    "surrogate",
    "unseen_writers",
    "within_groups",
    "writers",
]
