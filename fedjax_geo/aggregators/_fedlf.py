"""FedLF: layer by layer, the shortest combination of the clients' updates and a fairness direction.

Pan, Li, Yu, Wang, Wang, Tang, Zhao, 2024, "FedLF: Layer-Wise Fair Federated Learning", AAAI. L is the vector of
the losses, p that of equal entries and unit length. Per layer, with ``mu = mean_i ||g_i||``, the rows of V are the
updates, their combination ``f = h @ rows`` with

    h = ((L . p) L / ||L|| - p ||L||) / ||L||^2,

and the stored updates of clients seen lately; all are rescaled to length mu, and ``d = lambda V`` with lambda
minimising ``||lambda V||^2`` over the simplex. Over the whole model d is then rescaled to ``||mean_i g_i||``, or
less where that breaks the descent of a client.

The authors take full-batch gradients for ``g_i``, here they are the clients' updates, the variant their code holds
commented out; nothing but the tolerance on descent depends on their length.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedjax_geo import layers as layer_groups
from fedjax_geo import tree
from fedjax_geo.aggregators._cohort import cohort, combine, float_leaves, gram, like_params, smallest_norm
from fedjax_geo.aggregators._history import History, check_population, no_history, record
from fedjax_geo.aggregators._simplex_qp import shortest_in_hull
from fedjax_geo.types import Aggregator, Array, PyTree

_TOLERANCE = 1e-6  # how far a client may be from descent, the authors' constant


def fedlf(
    *, layers: layer_groups.Grouping = layer_groups.leaf, num_clients: int | None = None, tau: int | None = None
) -> Aggregator:
    """The FedLF aggregator.

    Clients of positive weight take part alike, if their update and loss are finite. A row of zero length is left
    out of its layer, and so is the fairness row where losses are equal.

    Args:
        layers: layer groups, each a problem of its own; the authors' are the single tensors.
        num_clients: clients in the population, n. If given, the last update of each is stored, ``[n, ...]``, and
            those seen lately that are not in this round's cohort count too.
        tau: for how many rounds they count; default the authors' rule, clients ever seen over cohort, rounded
            down.

    Returns:
        An optax link that reads ``weights`` (only whether above zero), ``losses``, ``client_ids`` and ``round``.

    Raises:
        ValueError: for tau without ``num_clients``.
    """
    if tau is not None and num_clients is None:
        raise ValueError(f"tau={tau} is about stored updates: num_clients, the population, must be given")

    def init(params: PyTree) -> History | optax.EmptyState:
        return optax.EmptyState() if num_clients is None else no_history(params, num_clients)

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
        fairness = _fairness(losses.astype(clients.norms.dtype), clients.usable)
        stored, recent = clients.rows, jnp.zeros_like(clients.usable)[:0]
        if isinstance(state, History):
            stored, recent = float_leaves(state.updates), _recent(state, client_ids, round, tau)
            state = record(state, updates, clients.usable, client_ids, round)

        groups = _groups(layers, updates)
        lengths, hulls, alive = [], [], []
        for members in groups:
            rows = [clients.rows[i] for i in members]
            norms = _norms(rows)
            lengths.append(jnp.sum(clients.shares * norms))  # mu
            unit, moving = _unit(rows, clients.usable)
            pulled = [leaf[None] for leaf in combine(fairness, unit)]
            noise = 10 * jnp.finfo(norms.dtype).eps * jnp.sum(jnp.abs(fairness))
            fair, pulling = _unit(pulled, _norms(pulled) > noise)
            parts, flags = [unit, fair], [moving, pulling]
            if recent.size:
                old, remembered = _unit([stored[i] for i in members], recent)
                parts.append(old)
                flags.append(remembered)
            hulls.append([jnp.concatenate(leaves) for leaves in zip(*parts, strict=True)])
            alive.append(jnp.concatenate(flags))
        chosen = jax.vmap(shortest_in_hull)(jnp.stack([gram(hull) for hull in hulls]), jnp.stack(alive))
        direction = list(clients.rows)
        for members, length, hull, coefficients in zip(groups, lengths, hulls, chosen, strict=True):
            for i, leaf in zip(members, combine(length * coefficients, hull), strict=True):
                direction[i] = leaf

        wanted = tree.norm(combine(clients.shares, clients.rows))
        dots = tree.total([tree.dot_rows(r, d) for r, d in zip(clients.rows, direction, strict=True)])
        noise = 10 * jnp.finfo(wanted.dtype).eps * jnp.max(clients.norms)
        scale = _scale(tree.norm(direction), wanted, jnp.min(jnp.where(clients.usable, dots, 0)), noise)
        return like_params(updates, [scale * leaf for leaf in direction]), state

    return Aggregator(init, update)


def _fairness(losses: Array, usable: Array) -> Array:
    """``h [m]``, up to a positive factor that its row's rescaling takes away.

    Written in the deviations from the mean loss: the textbook form leaves rounding where losses are equal.
    """
    count = jnp.maximum(jnp.sum(usable), 1).astype(losses.dtype)
    losses = jnp.where(usable, losses, 0)
    mean = jnp.sum(losses) / count
    deviation = jnp.where(usable, losses - mean, 0)
    deviation = jnp.where(jnp.abs(deviation) > 4 * jnp.finfo(losses.dtype).eps * jnp.abs(mean), deviation, 0)
    square = jnp.sum(jnp.square(losses))
    h = (count * mean * deviation - jnp.sum(jnp.square(deviation))) / jnp.where(square > 0, square, 1)
    return jnp.where(usable, h, 0)


def _recent(history: History, client_ids: Array, round: Array, tau: int | None) -> Array:
    """Stored clients that count -> bool ``[n]``: seen lately, and absent now."""
    seen = history.seen >= 0
    limit = jnp.sum(seen) // client_ids.shape[0] if tau is None else tau
    return (seen & (round - history.seen <= limit)).at[client_ids].set(False)


def _groups(layers: layer_groups.Grouping, updates: PyTree) -> list[list[int]]:
    """Positions among the float leaves of the members of each layer group."""
    labels = jax.tree.leaves(layers(jax.tree.map(lambda leaf: leaf[0], updates)))
    floats = [label for label, u in zip(labels, jax.tree.leaves(updates), strict=True) if tree.is_float(u)]
    return [[i for i, label in enumerate(floats) if label == name] for name in sorted(set(floats))]


def _norms(rows: list[Array]) -> Array:
    return jnp.sqrt(tree.total([tree.squared_norm_rows(leaf) for leaf in rows]))


def _unit(rows: list[Array], usable: Array) -> tuple[list[Array], Array]:
    """Rows of length one, and which there are; the others are zero."""
    norms = _norms(rows)
    moving = usable & (norms > smallest_norm(norms))
    inverse = jnp.where(moving, 1 / jnp.where(moving, norms, 1), 0)
    return [jnp.where(tree.column(moving, leaf), leaf * tree.column(inverse, leaf), 0) for leaf in rows], moving


def _scale(length: Array, wanted: Array, worst: Array, noise: Array) -> Array:
    """Factor on d: towards the wanted length, halved while a client's dot with d, ``worst``, forbids it."""
    full = jnp.where(length > noise, wanted / jnp.where(length > noise, length, 1), 0)
    scale = jax.lax.while_loop(lambda s: (s * worst < -_TOLERANCE) & (s > 2), lambda s: s / 2, full)
    return jnp.where(scale * worst < -_TOLERANCE, 1, scale)
