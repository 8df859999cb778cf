"""FedVG: clients weighted by the inverse norm of their model's gradient on the server's validation set.

FedVG, 2026, arXiv 2602.21399 (CVPR 2026 Findings; "FedGrad" in its code). With G_k the norm of the validation
gradient at client k's trained model, ``s_k = (1 / (G_k + eps)) / sum_j (1 / (G_j + eps))``: a small gradient
says that the model already fits the validation set. Data set sizes do not enter.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_geo import _validate, tree
from fedjax_geo import layers as layer_groups
from fedjax_geo.objective import mean_gradient
from fedjax_geo.types import Array, Examples, Key, PyTree, RoundInfo, Task, Variables, Weighting

Norm = Callable[[Array], Array]  # one leaf -> scalar
Smoothing = Callable[[PyTree], PyTree]  # weights, a tree of [m] -> the same


class Measure(NamedTuple):
    """What is taken the norm of: a function of one trained client that returns a tree like params."""

    measure: Callable[[Task, Variables, PyTree, Examples | None, Key], PyTree]
    needs_server_data: bool


def l1(leaf: Array) -> Array:
    """Sum of absolute values, the authors' default."""
    return jnp.sum(jnp.abs(leaf))


def l2(leaf: Array) -> Array:
    """Euclidean norm."""
    return jnp.sqrt(jnp.sum(jnp.square(leaf)))


def spectral_norm(leaf: Array) -> Array:
    """Largest singular value of the leaf as a matrix ``[rest, out]``; Euclidean norm of vectors and scalars."""
    if leaf.ndim < 2:
        return l2(leaf)
    return jnp.linalg.norm(leaf.reshape(-1, leaf.shape[-1]), ord=2)


def validation_gradient(batch_size: int = 100, *, train: bool | None = None) -> Measure:
    """The exact gradient of the mean loss over the server's validation set at the client's trained model.

    Args:
        batch_size: validation examples per pass of one client; changes memory (times the clients side by side)
            and speed, not the result, unless ``train``.
        train: whether the model is in training mode, as in the authors' code: dropout on, and a batch norm by the
            statistics of each batch, so that the result depends on the batches (theirs have 32 examples). By
            default models with statistics are, and others are not. The client's running statistics are not
            read in this mode, and never changed.
    """
    _validate.at_least("batch_size", batch_size, 1)

    def measure(
        task: Task, variables: Variables, update: PyTree, server_data: Examples | None, key: Key
    ) -> PyTree:
        del update
        if server_data is None or not server_data.y.shape[0]:
            raise ValueError("validation_gradient needs server data: give the federation a validation set")
        mode = bool(jax.tree.leaves(variables.stats)) if train is None else train
        return mean_gradient(task, variables, server_data, batch_size=batch_size, train=mode, key=key)

    return Measure(measure, needs_server_data=True)


def client_update() -> Measure:
    """The client's update itself, the "delta norm" of the paper's ablation; needs no validation set."""
    return Measure(lambda task, variables, update, server_data, key: update, needs_server_data=False)


def fedvg(
    *,
    measure: Measure | None = None,
    norm: Norm = l1,
    layers: layer_groups.Grouping = layer_groups.model,
    smoothing: Smoothing | None = None,
    eps: float = 1e-8,
    floor: float = 0.0,
) -> Weighting:
    """The FedVG weighting.

    Args:
        measure: ``validation_gradient()`` (default) or ``client_update()``.
        norm: of one parameter tensor: ``l1``, ``l2``, ``spectral_norm``. Norms are summed inside a group.
        layers: groups that share a weight: ``layers.model`` (one weight per client, the paper's main
            setting), ``layers.leaf`` ("layerwise") or ``layers.block`` ("blockwise").
        smoothing: of weights that differ by leaf, see ``moving_average`` and ``graph_average``.
        eps: added to the norm.
        floor: norms below this fraction of the cohort's median are raised to it. At 0, as in the paper, a
            client whose gradient vanishes takes practically all the weight.

    Raises:
        ValueError: for eps that is not positive or a negative floor.
    """
    measure = validation_gradient() if measure is None else measure
    _validate.positive("eps", eps)
    _validate.non_negative("floor", floor)

    def score(task: Task, variables: Variables, update: PyTree, server_data: Examples | None, key: Key) -> PyTree:
        labels = layers(variables.params)
        measured = measure.measure(task, variables, update, server_data, key)
        sums = tree.grouped(norm, labels, measured)
        if len(sums) == 1:
            return next(iter(sums.values()))
        return jax.tree.map(lambda label: sums[label], labels)

    def inverse(norms: Array) -> Array:  # a model that is not finite has no fit to speak of
        return jnp.where(jnp.isfinite(norms), 1 / (norms + eps), 0)

    def alone(size: Array, loss: Array, score: PyTree) -> PyTree:
        del size, loss
        return jax.tree.map(inverse, score)

    def weigh(info: RoundInfo, state: PyTree) -> tuple[Any, PyTree]:
        counted = info.num_examples > 0

        def floored(norms: Array) -> Array:
            middle = jnp.nanmedian(jnp.where(counted, norms, jnp.nan))
            return inverse(jnp.maximum(norms, floor * middle) if floor else norms)

        weights = tree.normalize(jax.tree.map(floored, info.reports.score), counted)
        if smoothing is not None:
            if isinstance(weights, jax.Array):
                raise ValueError("smoothing is of weights that differ by leaf: give layers=layers.leaf with it")
            weights = smoothing(weights)
        return weights, state

    by_itself = alone if not floor and smoothing is None else None
    return Weighting(weigh, score, needs_server_data=measure.needs_server_data, alone=by_itself)
