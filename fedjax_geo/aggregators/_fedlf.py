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

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_geo import layers as layer_groups
from fedjax_geo import tree
from fedjax_geo.aggregators._cohort import cohort, combine, smallest_norm
from fedjax_geo.aggregators._each import each
from fedjax_geo.aggregators._history import History, check_population, record, start
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
        return start(params, num_clients)

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
        groups = _groups(layers, updates)
        own = [_unit([clients.updates[i] for i in members], clients.usable) for members in groups]
        fairness = _fairness(losses.astype(clients.norms.dtype), clients.usable)
        kinds = [own, _fairness_rows(own, fairness)]
        if isinstance(state, History):
            stored, recent = tree.float_leaves(state.updates), _recent(state, client_ids, round, tau)
            kinds.append([_unit([stored[i] for i in members], recent) for members in groups])
        state = record(state, updates, clients.usable, client_ids, round)

        hulls = list(zip(*kinds, strict=True))  # the rows V of each layer
        moving = [jnp.concatenate([rows.norms > 0 for rows in hull]) for hull in hulls]
        cosines = [_cosines(hull) for hull in hulls]
        lengths = jnp.stack([jnp.sum(clients.shares * rows.norms) for rows in own])  # mu
        chosen = lengths[:, None] * each(shortest_in_hull, jnp.stack(cosines), jnp.stack(moving))
        cuts = np.cumsum([kind[0].norms.size for kind in kinds])[:-1]
        parts = [
            _combine(kind, list(coefficients))
            for kind, coefficients in zip(kinds, jnp.split(chosen, cuts, axis=1), strict=True)
        ]
        placed: dict[int, Array] = {}
        for members, *leaves in zip(groups, *parts, strict=True):
            placed |= {i: tree.total(terms) for i, *terms in zip(members, *leaves, strict=True)}
        direction = [placed[i] for i in range(len(placed))]

        wanted = tree.norm(combine(clients.shares, clients.updates))
        dots = tree.total([tree.dot_rows(r, d) for r, d in zip(clients.updates, direction, strict=True)])
        noise = 10 * jnp.finfo(wanted.dtype).eps * jnp.max(clients.norms)
        scale = _scale(tree.norm(direction), wanted, jnp.min(jnp.where(clients.usable, dots, 0)), noise)
        return tree.like_params(updates, [scale * leaf for leaf in direction]), state

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


class _Rows(NamedTuple):
    """Some rows of one layer, each of which stands for its direction."""

    leaves: list[Array]  # [k, ...], as they came; those of norm zero may hold anything
    norms: Array  # [k], zero for rows that do not count

    @property
    def inverse(self) -> Array:
        return jnp.where(self.norms > 0, 1 / jnp.where(self.norms > 0, self.norms, 1), 0)


def _norms(leaves: list[Array]) -> Array:
    return jnp.sqrt(tree.total([tree.squared_norm_rows(leaf) for leaf in leaves]))


def _unit(leaves: list[Array], usable: Array) -> _Rows:
    norms = _norms(leaves)
    return _Rows(leaves, jnp.where(usable & (norms > smallest_norm(norms)), norms, 0))


def _combine(layers: list[_Rows], coefficients: list[Array]) -> list[list[Array]]:
    """``sum_k c_k u_k`` of the unit rows u in each layer, leaf by leaf ``[...]``."""
    pairs = [
        ((c * rows.inverse).astype(leaf.dtype), leaf)
        for rows, c in zip(layers, coefficients, strict=True)
        for leaf in rows.leaves
    ]
    combined = iter(tree.combine(*zip(*pairs, strict=True)))
    return [[next(combined) for _ in rows.leaves] for rows in layers]


def _fairness_rows(own: list[_Rows], fairness: Array) -> list[_Rows]:
    """The fairness direction of each layer, one row; none where it is rounding."""
    noise = 10 * jnp.finfo(fairness.dtype).eps * jnp.sum(jnp.abs(fairness))
    pulled = [[leaf[None] for leaf in leaves] for leaves in _combine(own, [fairness] * len(own))]
    return [_unit(leaves, _norms(leaves) > noise) for leaves in pulled]


def _cosines(hull: tuple[_Rows, ...]) -> Array:
    """Between all rows of a layer -> ``[k, k]``, zero for those that do not count."""
    products = jnp.block(
        [[tree.total(list(map(tree.cross_rows, a.leaves, b.leaves))) for b in hull] for a in hull]
    )
    inverse = jnp.concatenate([rows.inverse for rows in hull])
    counted = inverse > 0
    return jnp.where(counted[:, None] & counted[None, :], products * inverse[:, None] * inverse[None, :], 0)


def _scale(length: Array, wanted: Array, worst: Array, noise: Array) -> Array:
    """Factor on d: towards the wanted length, halved while a client's dot with d, ``worst``, forbids it."""
    full = jnp.where(length > noise, wanted / jnp.where(length > noise, length, 1), 0)
    scale = jax.lax.while_loop(lambda s: (s * worst < -_TOLERANCE) & (s > 2), lambda s: s / 2, full)
    return jnp.where(scale * worst < -_TOLERANCE, 1, scale)
