"""Mixtures of weightings."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fedjax_geo import _validate, tree
from fedjax_geo.types import Array, Examples, Key, PyTree, Reports, RoundInfo, Task, Variables, Weighting


def mix(*weightings: Weighting, shares: Sequence[float] | None = None) -> Weighting:
    """A weighted mean of normalised weightings, ``w = sum_k share_k w^(k)``.

    ``mix(fedvg(), by_examples())`` is what the authors of FedVG combine with FedAvg.

    Args:
        *weightings: at least one.
        shares: one for each, not negative; equal by default, normalised here.

    Raises:
        ValueError: for no weighting, or shares of another number, or that sum to zero.
    """
    shares = [1.0] * len(weightings) if shares is None else list(shares)
    if not weightings or len(shares) != len(weightings):
        raise ValueError(f"mix needs one share for each weighting, got {len(shares)} and {len(weightings)}")
    whole = _validate.positive("sum of shares", sum(_validate.non_negative("shares", s) for s in shares))
    shares = [share / whole for share in shares]

    def init(num_clients: int) -> PyTree:
        return tuple(w.init(num_clients) for w in weightings)

    def score(task: Task, variables: Variables, update: PyTree, server_data: Examples | None, key: Key) -> PyTree:
        return tuple(w.score(task, variables, update, server_data, key) for w in weightings)

    def weigh(info: RoundInfo, state: PyTree) -> tuple[Any, PyTree]:
        parts, states = [], []
        for k, weighting in enumerate(weightings):
            own = info._replace(reports=Reports(info.reports.client, info.reports.score[k]))
            weights, new = weighting.weigh(own, state[k])
            parts.append(tree.normalize(weights, info.num_examples > 0))
            states.append(new)
        like = next((p for p in parts if not isinstance(p, jax.Array)), parts[0])
        trees = [tree.spread(part, like) for part in parts]

        def average(*leaves: Array) -> Array:
            return sum((s * leaf for s, leaf in zip(shares, leaves, strict=True)), jnp.zeros_like(leaves[0]))

        return jax.tree.map(average, *trees), tuple(states)

    return Weighting(weigh, score, init, any(w.needs_server_data for w in weightings))
