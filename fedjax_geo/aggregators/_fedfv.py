"""FedFV: conflicts between clients are projected away before and after averaging.

Wang, Fan, Qi, Wen, Wang, Yu, 2021, "Federated Learning with Fair Averaging", arXiv 2104.14937, algorithms 1-3:

1. The share alpha of clients with the largest losses keeps its updates.
2. Each other client's ``p <- p - (g_j . p) / ||g_j||^2 g_j`` for every j with ``g_j . p < 0``, in ascending order
   of the losses; ``g = mean_i p_i``.
3. From round tau on, for the ages tau - 1, ..., 0: the updates of that age that oppose g are summed to s, and
   ``g <- g - (g . s) / ||s||^2 s``. Age 0 is this round, as in the authors' code.
4. g is rescaled to the length of the plain mean.

Step 2 runs on coefficients: every p is a combination of the m updates, and all it needs is their Gram matrix.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_geo import _validate, tree
from fedjax_geo.aggregators._cohort import Cohort, cohort, combine, gram
from fedjax_geo.aggregators._history import History, check_population, record, start
from fedjax_geo.types import Aggregator, Array, PyTree

_HIGHEST = jax.lax.Precision.HIGHEST


def fedfv(alpha: float = 0.1, tau: int = 1, *, num_clients: int | None = None) -> Aggregator:
    """The FedFV aggregator.

    The mean is unweighted, over the clients of positive weight whose update and loss are finite. Equal losses are
    ordered by client id.

    Args:
        alpha: share of clients whose updates are kept; 0 keeps none, any other value at least one.
        tau: how many rounds of updates may oppose the result, this one included; 0 leaves step 3 out. More than 1
            stores the last update of every client of the population, ``[n, ...]``.
        num_clients: clients in the population, n; only needed for tau above 1.

    Returns:
        An optax link that reads ``weights`` (only whether above zero), ``losses``, ``client_ids`` and ``round``.
        To be followed by ``optax.sgd(1.0)``.

    Raises:
        ValueError: for alpha outside [0, 1), a negative tau, or tau above 1 without ``num_clients``.
    """
    _validate.fraction("alpha", alpha)
    _validate.at_least("tau", tau, 0)
    if tau > 1 and num_clients is None:
        raise ValueError(f"tau={tau} stores updates of past rounds: num_clients, the population, must be given")

    def init(params: PyTree) -> History | optax.EmptyState:
        return start(params, num_clients if tau > 1 else None)

    def update(
        updates: PyTree,
        state: History | optax.EmptyState,
        params: PyTree = None,
        *,
        weights: Any,
        losses: Array,
        client_ids: Array,
        round: Array,
        **info: Any,
    ) -> tuple[PyTree, History | optax.EmptyState]:
        check_population(num_clients, info)
        del params, info
        clients = cohort(updates, weights, needed=losses)
        direction = combine(_without_internal_conflicts(clients, losses, client_ids, alpha), clients.updates)
        state = record(state, updates, clients.usable, client_ids, round)
        if isinstance(state, History):
            others = _Others(tree.float_leaves(state.updates), [state.seen == round - age for age in range(tau)])
        else:
            others = _Others(clients.updates, [clients.usable] * tau)
        for members in reversed(others.by_age):
            direction = _without_conflict(direction, others.rows, members & (round >= tau))

        plain = tree.norm(combine(clients.shares, clients.updates))
        length = tree.norm(direction)
        noise = 100 * jnp.finfo(length.dtype).eps * jnp.max(clients.norms)  # what is left of updates that cancel
        factor = jnp.where(length > noise, plain / jnp.where(length > noise, length, 1), 0)
        return tree.like_params(updates, [factor * leaf for leaf in direction]), state

    return Aggregator(init, update)


class _Others(NamedTuple):
    rows: list[Array]  # [m, ...] or [n, ...]; those of no age may hold anything
    by_age: list[Array]  # which rows are of age 0, 1, ...


def _first_kept(count: int, alpha: float) -> int:
    """Position, in ascending order of the losses, from which updates are kept."""
    return math.ceil(round((count - 1) * (1 - alpha), 9)) if alpha > 0 and count > 0 else count


def _without_internal_conflicts(clients: Cohort, losses: Array, client_ids: Array, alpha: float) -> Array:
    """Coefficients ``[m]`` of ``mean_i p_i``."""
    m = losses.shape[0]
    products = gram(clients.updates, clients.usable)
    order = jnp.lexsort((client_ids, jnp.where(clients.usable, losses, jnp.inf), ~clients.usable))
    position = jnp.argsort(order)
    kept = position >= jnp.array([_first_kept(count, alpha) for count in range(m + 1)])[clients.number]

    def project(coefficients: Array, j: Array) -> tuple[Array, None]:
        """All p made free of conflict with g_j; ``coefficients`` has a row for each p."""
        dots = jnp.matmul(coefficients, products[:, j], precision=_HIGHEST)
        conflict = (dots < 0) & ~kept & (jnp.arange(m) != j) & (products[j, j] > 0)
        part = jnp.where(conflict, dots / jnp.where(products[j, j] > 0, products[j, j], 1), 0)
        return coefficients.at[:, j].add(-part), None

    coefficients, _ = jax.lax.scan(project, jnp.eye(m, dtype=products.dtype), order)
    return jnp.matmul(clients.shares, coefficients, precision=_HIGHEST)


def _without_conflict(direction: list[Array], rows: list[Array], members: Array) -> list[Array]:
    """The direction, less its part along the sum of the members' updates that oppose it."""
    dots = tree.total([tree.dot_rows(r, d.astype(r.dtype)) for r, d in zip(rows, direction, strict=True)])
    opposed = combine((members & (dots < 0)).astype(dots.dtype), rows)
    along = tree.total([jnp.sum(s * d) for s, d in zip(opposed, direction, strict=True)])
    square = tree.total([jnp.sum(jnp.square(s)) for s in opposed])
    part = jnp.where(along < 0, along / jnp.where(square > 0, square, 1), 0)
    return [d - part * s for d, s in zip(direction, opposed, strict=True)]
