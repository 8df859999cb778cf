"""Weightings in which a client's weight, before normalisation, is its own affair."""

from collections.abc import Callable
from typing import Any

import jax

from fedjax_geo.types import Array, PyTree, RoundInfo, Weighting


def separable(
    weight: Callable[[Array, Array, PyTree], Any],
    score: Callable[..., PyTree] = lambda *_: (),
    *,
    needs_server_data: bool = False,
) -> Weighting:
    """The weighting that gives every client what a function of it alone says.

    Args:
        weight: (examples, loss, score) of one client -> its weight, or a tree like params of weights.
        score: see ``Weighting``.
        needs_server_data: whether the score reads the server's validation set.
    """

    def weigh(info: RoundInfo, state: PyTree) -> tuple[Any, PyTree]:
        return jax.vmap(weight)(info.num_examples, info.losses, info.reports.score), state

    return Weighting(weigh, score, needs_server_data=needs_server_data, alone=weight)
