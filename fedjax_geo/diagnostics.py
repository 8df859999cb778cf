"""What the server's step means to each client, for whatever aggregator made it."""

import jax
import jax.numpy as jnp

from fedjax_geo import tree
from fedjax_geo.layers import Grouping
from fedjax_geo.types import Array, PyTree


def _divide(a: Array, b: Array) -> Array:
    return jnp.where(b > 0, a / jnp.where(b > 0, b, 1), 0)


def conflict(
    step: PyTree, updates: PyTree, weights: Array, previous: PyTree, layers: Grouping
) -> dict[str, Array]:
    """How a step agrees with the updates that it was made of.

    Clients whose update is zero or not finite are left out.

    Args:
        step: server parameters before minus after, like params; any scale.
        updates: pseudo-gradients, leaves ``[m, ...]``.
        weights: ``[m]``, the share of descent that each client should get.
        previous: the step of the round before.
        layers: groups in which the constraint residual is measured.

    Returns:
        Scalars.

        * ``worst_cosine``: smallest cosine between the step and a client's update; negative means that the
          step raises this client's loss to first order.
        * ``conflict_share``: share of clients with a negative cosine.
        * ``constraint_residual``: largest ``|alpha <u_i, s> - rho_i|`` over clients and groups, where u_i is
          the client's unit update in the group, s the step there and alpha the best single factor of the
          group. It does not depend on the server's learning rate; for a CRAFT direction it is
          ``max |U g - rho|``.
        * ``previous_cosine``: cosine with the step before.
    """
    labels = layers(step)
    products = tree.grouped(tree.dot_rows, labels, updates, step)
    squares = tree.grouped(tree.squared_norm_rows, labels, updates)
    product, norms = tree.total(list(products.values())), jnp.sqrt(tree.total(list(squares.values())))
    usable = jnp.isfinite(norms) & (norms > 0)
    count = jnp.sum(usable)
    cosines = jnp.where(usable, _divide(product, norms * tree.norm(step)), 0)
    worst = jnp.min(jnp.where(usable, cosines, jnp.inf))

    def residual(label: str) -> Array:
        own = usable & (squares[label] > 0)
        shares = tree.normalize(weights, own)
        along = jnp.where(own, _divide(products[label], jnp.sqrt(squares[label])), 0)
        alpha = _divide(jnp.sum(along * shares), jnp.sum(along * along))
        return jnp.max(jnp.abs(alpha * along - shares))

    between = tree.total([jnp.sum(a * b) for a, b in zip(*map(jax.tree.leaves, (step, previous)), strict=True)])
    return {
        "worst_cosine": jnp.where(count > 0, worst, 0),
        "conflict_share": jnp.sum(cosines < 0) / jnp.maximum(count, 1),
        "constraint_residual": jnp.max(jnp.stack([residual(label) for label in products])),
        "previous_cosine": _divide(between, tree.norm(step) * tree.norm(previous)),
    }
