"""One round, as one straight line.

    sample ids -> gather rows -> map clients: loss, local training, score -> RoundInfo -> weigh
      -> server chain -> apply -> scatter client states -> metrics

A client's randomness is a fold of (round key, client id), never of its place in the cohort, so that the order of
the cohort, chunks and devices cannot change its trajectory. No key is stored: a round is a function of the run's
key and the round's number.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_geo import layers, parallel, tree
from fedjax_geo.batches import Work, check_work, num_local_steps, serve
from fedjax_geo.diagnostics import conflict
from fedjax_geo.objective import local_loss
from fedjax_geo.shuffle import permuted
from fedjax_geo.types import (
    Array,
    Examples,
    FederatedData,
    Key,
    MeanServer,
    Method,
    PyTree,
    Reports,
    RoundInfo,
    RoundState,
    Task,
    Variables,
)

Metrics = dict[str, Array]


class Cohort(NamedTuple):
    """What a round needs of its clients, rows of the federation and of the population's states."""

    ids: Array  # [m] int32
    indices: Array  # [m, capacity] int32, of the examples
    sizes: Array  # [m] int32
    states: PyTree  # leaves [m, ...]


class Round(NamedTuple):
    """A federated process as pure functions.

    ``step`` is ``draw``, the rows of that cohort, ``advance``, and the cohort's states put back. The two are for
    who keeps the population elsewhere: ``advance`` takes and returns a state whose ``clients`` are ``()``, and
    needs of the examples those that the cohort's indices name.
    """

    init: Callable[[Key, FederatedData], RoundState]
    step: Callable[[RoundState, Key, FederatedData], tuple[RoundState, Metrics]]
    # (round, key, sizes of all clients [n]) -> ids [m]
    draw: Callable[[Array, Key, Array], Array]
    # (state, key, cohort, examples, validation, n) -> (state, states of the cohort after, metrics)
    advance: Callable[..., tuple[RoundState, PyTree, Metrics]]


def cohort_size(num_clients: int, fraction: float) -> int:
    """Clients for a participation fraction: the smallest whole number not below it, and at least one.

    Raises:
        ValueError: if the fraction is not above 0 and at most 1.

    >>> cohort_size(100, 0.29), cohort_size(100, 0.005), cohort_size(25, 0.1)
    (29, 1, 3)
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must be above 0 and at most 1, got {fraction}")
    return max(1, math.ceil(round(fraction * num_clients, 9)))  # .07 * 100 is 7.000000000000001


def check_round(method: Method, data: FederatedData, cohort: int) -> None:
    """Check that a method and a cohort fit a federation.

    Raises:
        ValueError: if the cohort is empty or larger than the population, or the method needs validation
            examples that the federation does not have.
    """
    if not 1 <= cohort <= data.num_clients:
        raise ValueError(
            f"cohort must be between 1 and the population of {data.num_clients} clients, got {cohort}"
        )
    validation = 0 if data.validation is None else data.validation.y.shape[0]
    if method.weighting.needs_server_data and validation == 0:
        raise ValueError(
            "this method's weighting needs a validation set at the server, and the data has none: "
            "build the federation with one, such as validation=server_holdout(0.1)"
        )


def make_round(
    method: Method,
    task: Task,
    *,
    cohort: int,
    work: Work = Work(),
    strategy: parallel.Strategy | None = None,
    diagnose: layers.Grouping | None = layers.module,
) -> Round:
    """Compose a method and a task into the functions that start and advance a federated process.

    Args:
        method: how clients train, how much they count, what the server does.
        task: model, preparation of inputs, loss.
        cohort: clients sampled each round, m, uniformly and without replacement.
        work: batch size and amount of local work.
        strategy: the layout over devices; default ``parallel.default_strategy()``.
        diagnose: layer groups for the constraint residual among the round's metrics; None leaves
            ``diagnostics.conflict`` out. Where nothing but the mean of the updates is needed then (a server
            of ``aggregators.averaged`` and a weighting of one client ``alone``), memory for updates follows the
            chunk, not the cohort.

    Returns:
        ``Round(init, step, draw, advance)``; the data is an argument, never a constant of the program. ``step``
        raises ``ValueError`` while it is traced if method, cohort and data do not fit.
    """
    check_work(work)
    strategy = parallel.check(parallel.default_strategy() if strategy is None else strategy)
    server = optax.with_extra_args_support(method.server)
    short = strategy.short_batches(work.batch_size)
    # Nothing but the mean is read of the updates: each is added to it as soon as it is there.
    alone = method.weighting.alone if isinstance(method.server, MeanServer) and diagnose is None else None

    def init(key: Key, data: FederatedData) -> RoundState:
        check_round(method, data, cohort)
        rows = jnp.asarray(data.examples.x[: work.batch_size])
        example = task.prepare(rows, train=False, key=jax.random.fold_in(key, 2))
        variables = task.model.init(jax.random.fold_in(key, 0), example)
        _check_params(variables.params)
        n = data.num_clients
        one = method.client.init(variables)
        return RoundState(
            round=jnp.zeros((), jnp.int32),
            variables=variables,
            server=server.init(variables.params),
            weighting=method.weighting.init(n),
            clients=jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[None], (n, *leaf.shape)), one),
            shared=method.client.init_shared(variables.params),
            step=tree.zeros_like(variables.params),
        )

    def train_one(one: tuple[Cohort, Key], server_side: tuple) -> tuple:
        client, key = one  # a row of the cohort, and the client's key for this round
        variables, shared, round_number, examples, server_data = server_side
        shuffle_key, train_key, score_key = jax.random.split(key, 3)
        batches = serve(examples, client.indices, client.sizes, shuffle_key, work, short)
        loss = local_loss(task, method.client.complete(variables, client.states), batches, score_key)
        out = method.client.train(
            task, variables, shared, client.states, batches, round=round_number, key=train_key
        )
        # One client that breaks must not break the model, the statistics or what it keeps itself.
        spoke = (client.sizes > 0) & out.answered
        answered = spoke & tree.is_finite((out.update, out.stats, out.state))
        out = out._replace(
            update=tree.select(answered, out.update, tree.zeros_like(out.update)),
            state=tree.select(answered, out.state, client.states),
            answered=answered,
            num_steps=jnp.where(answered, batches.num_steps if out.num_steps is None else out.num_steps, 0),
        )
        sent = Variables(tree.subtract(variables.params, out.update), out.stats)
        trained = method.client.complete(sent, out.state)
        score = method.weighting.score(task, trained, out.update, server_data, score_key)
        if alone is None:
            return (out, loss, score, spoke & ~answered), ()
        weight = jax.tree.map(tree.wide, tree.countable(alone(client.sizes, loss, score), answered))
        return (out._replace(update=()), loss, score, spoke & ~answered), (tree.scale(weight, out.update), weight)

    def keys(round: Array, key: Key) -> Array:
        return jax.random.split(jax.random.fold_in(jax.random.fold_in(key, 1), round), 3)

    def draw(round: Array, key: Key, sizes: Array) -> Array:
        ids = jnp.sort(permuted(keys(round, key)[0], jnp.arange(cohort), sizes.shape[0]))
        return ids[parallel.arrange(num_local_steps(sizes[ids], work), strategy)]

    def step(state: RoundState, key: Key, data: FederatedData) -> tuple[RoundState, Metrics]:
        check_round(method, data, cohort)
        ids = draw(state.round, key, data.train.sizes)
        drawn = Cohort(ids, data.train.indices[ids], data.train.sizes[ids], tree.take(state.clients, ids))
        new, states, metrics = advance(
            state._replace(clients=()), key, drawn, data.examples, data.validation, data.num_clients
        )
        everybody = jax.tree.map(lambda all_, some: all_.at[ids].set(some), state.clients, states)
        return new._replace(clients=everybody), metrics

    def advance(
        state: RoundState,
        key: Key,
        drawn: Cohort,
        examples: Examples,
        validation: Examples | None,
        num_clients: int,
    ) -> tuple[RoundState, PyTree, Metrics]:
        _, clients_key, server_key = keys(state.round, key)
        clients = (drawn, jax.vmap(jax.random.fold_in, (None, 0))(clients_key, drawn.ids))
        server_side = (state.variables, state.shared, state.round, examples, validation)
        (out, losses, score, broken), sums = parallel.fold_clients(train_one, clients, server_side, strategy)
        # A client that does not answer counts as one without examples.
        sizes, losses = jnp.where(out.answered, drawn.sizes, 0), jnp.where(out.answered, losses, 0)

        info = RoundInfo(
            weights=None,
            num_examples=sizes,
            num_steps=out.num_steps,
            losses=losses,
            client_ids=drawn.ids,
            num_clients=num_clients,
            reports=Reports(client=out.report, score=score),
            server_data=validation,
            round=state.round,
            key=server_key,
        )
        weights, weighting_state = method.weighting.weigh(info, state.weighting)
        weights = tree.normalize(weights, sizes > 0)
        info = info._replace(weights=weights)
        per_client = tree.overall(weights)

        params = state.variables.params
        if alone is not None:  # a cohort of one, the mean
            mean = jax.tree.map(tree.over, sums[0], tree.spread(sums[1], params))
            out = out._replace(update=jax.tree.map(lambda leaf, p: leaf[None].astype(p.dtype), mean, params))
            info = info._replace(weights=jnp.ones(1, losses.dtype))
        change, server_state = server.update(out.update, state.server, params, **info._asdict())
        _check_change(change, params)
        variables = Variables(optax.apply_updates(params, change), tree.average_stats(per_client, out.stats))
        change = jax.tree.map(jnp.negative, change)

        # Nobody counts: the model and the server stay as they are, the round is flagged. What a weighting has
        # learned stays learned, or weights that fell to zero could never rise again.
        active = jnp.sum(per_client) > 0
        variables, server_state, change = tree.select(
            active,
            (variables, server_state, change),
            (state.variables, state.server, tree.zeros_like(params)),
        )
        new_state = RoundState(
            round=state.round + 1,
            variables=variables,
            server=server_state,
            weighting=weighting_state,
            clients=(),
            shared=method.client.share(state.shared, drawn.states, out.state, num_clients),
            step=change,
        )
        shares = tree.normalize(sizes.astype(losses.dtype), sizes > 0)
        metrics = {
            name: tree.weighted_mean(shares, value.astype(losses.dtype)) for name, value in out.metrics.items()
        }
        metrics |= {
            "examples": jnp.sum(sizes),
            "max_weight": jnp.max(per_client),
            "step_norm": tree.norm(change),
            "skipped": ~active,
            "nonfinite_clients": jnp.sum(broken),
        }
        if diagnose is not None:
            metrics |= conflict(change, out.update, per_client, state.step, diagnose)
        return new_state, out.state, metrics

    return Round(init, step, draw, advance)


def _check_params(params: PyTree) -> None:
    for name, leaf in zip(tree.paths(params), jax.tree.leaves(params), strict=True):
        if not tree.is_float(leaf):
            raise ValueError(
                f"params must be floating point, and {name} is {leaf.dtype}: put what is not trained into stats"
            )


def _check_change(change: PyTree, params: PyTree) -> None:
    """A chain without an aggregator, or with two, must not broadcast its way through."""
    needed = "it needs exactly one aggregator, such as weighted_mean()"
    if tree.paths(change) != tree.paths(params):
        raise ValueError(f"the server chain returned another structure than that of the parameters: {needed}")
    shapes = [(leaf.shape, like.shape) for leaf, like in zip(*map(jax.tree.leaves, (change, params)), strict=True)]
    wrong = [f"{got} for {expected}" for got, expected in shapes if got != expected]
    if wrong:
        raise ValueError(f"the server chain returned {wrong[0]}: {needed}")
