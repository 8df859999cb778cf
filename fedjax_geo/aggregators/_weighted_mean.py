"""The weighted mean of the clients' updates, the server of FedAvg.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas, 2017, arXiv 1602.05629.
"""

from typing import Any

import optax

from fedjax_geo import tree
from fedjax_geo.types import Aggregator, MeanServer, PyTree


def weighted_mean() -> Aggregator:
    """``g = sum_i w_i g_i`` with the round's weights: stacked updates ``[m, ...]`` to one ``[...]``.

    >>> import jax.numpy as jnp
    >>> link = weighted_mean()
    >>> g, _ = link.update(jnp.array([[0.0], [4.0]]), link.init(jnp.zeros(1)), weights=jnp.array([0.25, 0.75]))
    >>> g
    Array([3.], dtype=float32)
    """

    def init(params: PyTree) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    def update(
        updates: PyTree, state: optax.EmptyState, params: PyTree = None, *, weights: Any, **info: Any
    ) -> tuple[PyTree, optax.EmptyState]:
        del params, info
        return tree.weighted_mean(weights, updates), state

    return Aggregator(init, update)


def averaged(*links: optax.GradientTransformation) -> MeanServer:
    """``weighted_mean()`` and then the links, as a server that is known to need the mean only.

    The same as ``optax.chain(weighted_mean(), *links)``, except that a round may take the mean while clients
    train, without ever holding all updates: the chain then sees a cohort of one, the mean, while what it is told
    of the clients beside (losses, reports) is of all of them. So the links must take neither from the stack nor
    from ``weights``.
    """
    return MeanServer(*optax.chain(weighted_mean(), *links))
