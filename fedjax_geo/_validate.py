"""Checks of arguments, with messages that name the argument, the value and what would be right."""

import difflib
import math
from collections.abc import Callable, Mapping
from typing import TypeVar

import jax
import jax.numpy as jnp
import optax

Choice = TypeVar("Choice")


def positive(name: str, value: float) -> float:
    """A finite number above zero.

    Raises:
        ValueError: otherwise.
    """
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number above 0, got {value}")
    return value


def non_negative(name: str, value: float) -> float:
    """A finite number that is not negative.

    Raises:
        ValueError: otherwise.
    """
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be a finite number of at least 0, got {value}")
    return value


def fraction(name: str, value: float) -> float:
    """A number from 0 up to, but not including, 1.

    Raises:
        ValueError: otherwise.
    """
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {value}")
    return value


def at_least(name: str, value: int, least: int) -> int:
    """A whole number of at least ``least``.

    Raises:
        ValueError: otherwise.
    """
    if isinstance(value, bool) or int(value) != value or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value}")
    return int(value)


def choose(what: str, table: Mapping[str, Choice], name: str) -> Choice:
    """The entry of a table.

    Raises:
        ValueError: for an unknown name, with the closest known one.

    >>> choose("model", {"mlp": 1, "cnn": 2}, "mpl")
    Traceback (most recent call last):
        ...
    ValueError: unknown model 'mpl', did you mean 'mlp'? Known: mlp, cnn
    """
    if name in table:
        return table[name]
    close = difflib.get_close_matches(name, table, 1)
    hint = f", did you mean '{close[0]}'?" if close else "."
    raise ValueError(f"unknown {what} '{name}'{hint} Known: {', '.join(table)}")


def optimizer(
    name: str, value: optax.GradientTransformation | Callable[..., optax.GradientTransformation]
) -> Callable[[jax.Array], optax.GradientTransformation]:
    """An optimizer, or a function of the round that returns one, as a function of the round.

    One step on a one-element model is taken here, so that a NaN learning rate is found before anything is
    compiled.

    Raises:
        ValueError: if that step is not finite.
        TypeError: if it is neither.
    """
    if isinstance(value, optax.GradientTransformation):
        given = value
        by_round = lambda _: given  # noqa: E731
    elif callable(value):
        by_round = value
    else:
        raise TypeError(f"{name} must be an optax optimizer or a function round -> optimizer, got {value!r}")
    chosen = by_round(jnp.zeros((), jnp.int32))
    if not isinstance(chosen, optax.GradientTransformation):
        raise TypeError(f"{name}(round) must return an optax optimizer, got {chosen!r}")
    probe = jnp.ones((1,))
    step, _ = chosen.update(probe, chosen.init(probe), probe)
    if isinstance(step, jax.core.Tracer):  # a rate of a sweep, whose numbers have been here before
        return by_round
    if not bool(jnp.all(jnp.isfinite(step))):
        raise ValueError(f"{name} takes a step of {float(step[0])} on a gradient of 1: check its learning rate")
    return by_round
