"""Layer groups: which leaves of a params tree count as one layer.

A grouping is a function from params to a tree of labels like params; leaves with one label form one group.
CRAFT (arXiv 2605.21317) solves one system per ``module``, FedVG (arXiv 2602.21399) weighs per ``leaf``,
``block`` or ``model``.
"""

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import jax

from fedjax_geo.types import PyTree

Grouping = Callable[[PyTree], PyTree]
Path = tuple[str, ...]

_OF_A_MODULE = {"kernel", "bias", "scale", "weight", "embedding"}
_OF_A_NORM = {"scale", "bias"}
_KIND = re.compile(r"(group|layer|batch|instance|rms)?norm|conv|bn|gn|ln|[^a-z0-9]")


def leaf(params: PyTree) -> PyTree:
    """Every leaf is a group.

    >>> leaf({"fc1": {"kernel": 0.0, "bias": 0.0}})
    {'fc1': {'bias': 'fc1/bias', 'kernel': 'fc1/kernel'}}
    """
    return by_path("/".join)(params)


def module(params: PyTree) -> PyTree:
    """The leaves of one module are a group, and a norm joins its convolution.

    A module is what holds ``kernel``, ``bias``, ``scale``, ``weight`` or ``embedding``; any other leaf, such
    as a class token, is a group of its own. A norm, which holds a scale and a bias at most, joins the
    convolution beside it whose name is the same but for the words that tell their kinds: ``norm1`` joins
    ``conv1``, ``GroupNorm_0`` joins ``Conv_0``, ``shortcut_norm`` joins ``shortcut_conv``. A norm without
    such a convolution is a group of its own. (The rule goes by name because a dictionary of parameters
    forgets the order of its modules.)

    >>> module({"conv1": {"kernel": jax.numpy.ones((3, 3, 1, 8))}, "norm1": {"scale": 1.0}, "token": 0.0})
    {'conv1': {'kernel': 'conv1'}, 'norm1': {'scale': 'conv1'}, 'token': 'token'}
    """
    merged = _merged(params)
    return by_path(lambda path: "/".join(merged[path]))(params)


def block(params: PyTree) -> PyTree:
    """Top-level modules are the groups; among them a norm joins its convolution as in ``module``.

    >>> block({"layer1": {"0": {"conv": {"kernel": 0.0}}}, "fc": {"bias": 0.0}})
    {'fc': {'bias': 'fc'}, 'layer1': {'0': {'conv': {'kernel': 'layer1'}}}}
    """
    merged = _merged(params)
    return by_path(lambda path: "/".join(merged[path][:1]))(params)


def model(params: PyTree) -> PyTree:
    """All leaves are one group.

    >>> model({"fc1": {"kernel": 0.0, "bias": 0.0}})
    {'fc1': {'bias': 'model', 'kernel': 'model'}}
    """
    return by_path(lambda path: "model")(params)


def by_path(label: Callable[[Path], str]) -> Grouping:
    """Groups leaves by a function of their path.

    Args:
      label: path of a leaf, as a tuple of names, to the label of its group; an empty label reads ``model``.

    Returns:
      A grouping.

    >>> grouping = by_path(lambda path: "head" if path[0] == "fc" else "body")
    >>> grouping({"fc": {"bias": 0.0}, "conv": {"bias": 0.0}})
    {'conv': {'bias': 'body'}, 'fc': {'bias': 'head'}}
    """

    def grouping(params: PyTree) -> PyTree:
        return jax.tree_util.tree_map_with_path(lambda path, _: label(_names(path)) or "model", params)

    return grouping


def names(labels: PyTree) -> list[str]:
    """The distinct labels of a tree of labels, sorted."""
    return sorted(set(jax.tree.leaves(labels)))


def widths(params: PyTree, labels: PyTree) -> dict[str, int]:
    """The number of parameters of each group, by label, sorted.

    >>> params = {"fc": {"kernel": jax.numpy.ones((3, 2)), "bias": jax.numpy.ones(2)}}
    >>> widths(params, module(params))
    {'fc': 8}
    """
    total = dict.fromkeys(names(labels), 0)
    for label, values in zip(jax.tree.leaves(labels), jax.tree.leaves(params), strict=True):
        total[label] += values.size
    return total


def _names(path: tuple[Any, ...]) -> Path:
    return tuple(jax.tree_util.keystr((key,), simple=True) for key in path)


def _merged(params: PyTree) -> dict[Path, Path]:
    """Path of each leaf -> path of the module it counts to."""
    ranks = {_names(path): getattr(x, "ndim", 0) for path, x in jax.tree_util.tree_leaves_with_path(params)}
    home = {path: path[:-1] if path and path[-1] in _OF_A_MODULE else path for path in ranks}
    leaves: dict[Path, set[str]] = defaultdict(set)
    for path, owner in home.items():
        leaves[owner] |= set(path[len(owner) :])
    # A convolution by its parent and the part of its name that it shares with its norm.
    convolutions = {_kinship(owner): owner for owner in leaves if ranks.get((*owner, "kernel"), 0) >= 3}
    norms = {owner for owner, members in leaves.items() if owner and members and members <= _OF_A_NORM}
    return {path: convolutions.get(_kinship(o), o) if o in norms else o for path, o in home.items()}


def _kinship(path: Path) -> tuple[Path, str]:
    return path[:-1], _KIND.sub("", path[-1].lower()) if path else ""
