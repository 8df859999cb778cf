"""A model that a client keeps for itself between its rounds."""

from typing import NamedTuple

import jax.numpy as jnp

from fedjax_geo import tree
from fedjax_geo.types import Array, Variables


class Own(NamedTuple):
    """The kept model, and whether it comes from training already."""

    model: Variables
    trained: Array  # bool [], False until the client has taken part


def untrained(model: Variables) -> Own:
    """The state of a client that has not taken part yet."""
    return Own(model, jnp.zeros((), bool))


def trained(model: Variables) -> Own:
    """The state of a client that has."""
    return Own(model, jnp.ones((), bool))


def recall(own: Own, otherwise: Variables) -> Variables:
    """The model from training, or another if there is none yet."""
    return tree.select(own.trained, own.model, otherwise)
