"""Populations larger than the device: in host memory, their cohorts brought to the device one round ahead.

JAX computes while Python goes on: whoever has started a round reads the next cohort instead of waiting. The device
holds the examples of these two.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_geo import evaluate, parallel, tree
from fedjax_geo.batches import Work
from fedjax_geo.evaluate import ClientScores, FlatSplit
from fedjax_geo.round import Cohort, Round
from fedjax_geo.types import (
    Array,
    ClientAlgorithm,
    Examples,
    FederatedData,
    Key,
    Method,
    PyTree,
    RoundState,
    Split,
    Task,
    Variables,
)

# (state, count) -> the state so many rounds later, in the memory of the given one, and metrics [count or more]
Advance = Callable[[RoundState, int], tuple[RoundState, dict[str, np.ndarray]]]


class Home(NamedTuple):
    """Where a population is kept during a run, as what the run asks of that place."""

    init: Callable[[], RoundState]  # the state before the first round
    copy: Callable[[RoundState], RoundState]  # of a state that may be elsewhere
    compile: Callable[[RoundState, int, int], Advance]  # (state, rounds of the run, most rounds at a time)
    score: Callable[[RoundState], dict[str, ClientScores]]  # by the names of simulate.Evaluation


def on_host(
    process: Round,
    task: Task,
    method: Method,
    data: FederatedData,
    key: Key,
    strategy: parallel.Strategy,
    work: Work,
    side_by_side: int,
) -> Home:
    """Examples, index tables and states of clients stay in host memory; what a cohort needs goes to the device.

    A round is that of a population on the device, since it needs no other rows than its cohort's. Cohorts depend
    on nothing that is learned, so those of the whole run are drawn at its start, and examples come in the shape of
    the largest.

    Args:
        process: the rounds.
        task: model and loss.
        method: whose rounds they are.
        data: the federation; its examples are read by ``examples.x[numbers]`` only, so that they may be
            memory-mapped. The validation set goes to the device.
        key: of the run.
        strategy: the layout.
        work: as in the rounds.
        side_by_side: clients whose personal models are evaluated at a time.

    Raises:
        ValueError: in a run of several processes.
    """
    if jax.process_count() > 1:
        raise ValueError(f"stream must be False in a run of several processes, got True in {jax.process_count()}")
    data = jax.tree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf, data)
    n, train = data.num_clients, data.train
    validation = parallel.replicate(data.validation, strategy)

    def init() -> RoundState:
        def begin(key: Key, data: FederatedData) -> RoundState:
            state = process.init(key, data)
            return state._replace(clients=method.client.init(state.variables))  # of one client, not of n

        first = jax.tree.map(lambda leaf: leaf[: work.batch_size], data.examples)
        view = replace(data, examples=first, train=_nothing(n), test=_nothing(n), client_names=())
        state = parallel.replicate(jax.jit(begin)(key, view), strategy)
        clients = jax.tree.map(lambda leaf: np.repeat(leaf[None], n, axis=0), jax.device_get(state.clients))
        return state._replace(clients=clients)

    def copy(state: RoundState) -> RoundState:
        clients = jax.tree.map(np.array, state.clients)
        others = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), state._replace(clients=()))
        return parallel.replicate(others, strategy)._replace(clients=clients)

    def one_round(state: RoundState, states: PyTree, key: Key, cohort: Cohort, *sets: Examples | None) -> tuple:
        return process.advance(state, key, cohort._replace(states=states), *sets, n)

    @jax.jit
    def draw(rounds: Array, key: Key, sizes: Array) -> Array:
        return jax.lax.map(lambda round: process.draw(round, key, sizes), rounds)

    def compile(state: RoundState, rounds: int, length: int) -> Advance:
        del length
        first = int(state.round)
        cohorts = np.asarray(draw(jnp.arange(first, rounds, dtype=jnp.int32), key, jnp.asarray(train.sizes)))
        most = int(train.sizes[cohorts].sum(axis=1).max())

        def load(round: int) -> tuple[Cohort, Examples]:
            ids: Any = cohorts[round - first]
            examples, indices = gather(data.examples, train.indices[ids], _filled(train, ids), most)
            return parallel.replicate((Cohort(ids, indices, train.sizes[ids], ()), examples), strategy)

        def states_of(clients: PyTree, round: int) -> PyTree:
            return parallel.replicate(tree.take(clients, cohorts[round - first]), strategy)

        loaded = load(first)
        jitted = jax.jit(one_round, donate_argnums=(0, 1), out_shardings=parallel.replicated(strategy))
        arguments = state._replace(clients=()), states_of(state.clients, first), key, *loaded, validation
        compiled = jitted.lower(*arguments).compile()

        def advance(state: RoundState, count: int) -> tuple[RoundState, dict[str, np.ndarray]]:
            nonlocal loaded
            clients, state = state.clients, state._replace(clients=())
            begin = int(state.round)
            history: list[PyTree] = []
            for round in range(begin, begin + count):
                state, states, metrics = compiled(state, states_of(clients, round), key, *loaded, validation)
                jax.block_until_ready(history[-1:])  # the round before: its examples are no longer needed
                if round + 1 < rounds:
                    loaded = load(round + 1)
                for kept, some in zip(*map(jax.tree.leaves, (clients, jax.device_get(states))), strict=True):
                    kept[cohorts[round - first]] = some
                history.append(metrics)
            return state._replace(clients=clients), jax.tree.map(lambda *m: np.stack(m), *jax.device_get(history))

        return advance

    score = make_scores_in_parts(task, method.client, data, key, strategy, work, side_by_side)
    return Home(init, copy, compile, score)


def make_scores_in_parts(
    task: Task,
    client: ClientAlgorithm,
    data: FederatedData,
    key: Key,
    strategy: parallel.Strategy,
    work: Work,
    side_by_side: int,
) -> Callable[[RoundState], dict[str, ClientScores]]:
    """A function that scores a state on all clients' test examples, by the names of ``simulate.Evaluation``.

    The global model's examples come two passes at a time for each device, personal models in groups of
    ``side_by_side`` clients with what they need. Arguments as for ``on_host``.
    """
    n, split = data.num_clients, evaluate.flatten(data.test)
    total = len(split.indices)
    batch = min(evaluate.BATCH, max(total, 1))
    part = batch * max(1, min(2 * strategy.num_devices, -(-total // batch)))
    groups = [np.minimum(np.arange(i, i + side_by_side), n - 1) for i in range(0, n, side_by_side)]
    train = _nothing(n) if client.adapt is None else data.train
    most = max(int(np.sum(data.test.sizes[ids]) + np.sum(train.sizes[ids])) for ids in groups)
    own_strategy = strategy._replace(chunk=strategy.chunk or side_by_side)

    @jax.jit
    def add_part(variables: Variables, examples: Examples, split: FlatSplit, so_far: ClientScores) -> ClientScores:
        return evaluate.score_global(
            task, variables, examples, split, n, batch_size=batch, strategy=strategy, so_far=so_far
        )

    @jax.jit
    def score_group(state: RoundState, data: FederatedData, ids: Any, key: Key) -> ClientScores:
        return evaluate.score_personal(
            task,
            client,
            state.variables,
            state.clients,
            data,
            own_strategy,
            work=work,
            round=state.round,
            key=key,
            ids=ids,
        )

    def load_part(start: int) -> tuple[Examples, FlatSplit]:
        places = np.arange(start, start + part)
        filled, places = places < total, np.minimum(places, total - 1)
        examples, indices = gather(data.examples, split.indices[places], filled, part)
        owners: Any = np.where(filled, split.owners[places], n)
        return parallel.replicate((examples, FlatSplit(indices, owners)), strategy)

    def load_group(ids: Any, clients: PyTree) -> tuple[PyTree, FederatedData, Any]:
        splits = data.test, train
        indices: Any = np.hstack([split.indices[ids] for split in splits])
        filled = np.hstack([_filled(split, ids) for split in splits])
        examples, indices = gather(data.examples, indices, filled, most)
        cut = data.test.indices.shape[1]
        test, own = Split(indices[:, :cut], data.test.sizes[ids]), Split(indices[:, cut:], train.sizes[ids])
        view = replace(data, examples=examples, train=own, test=test, validation=None, client_names=())
        return parallel.replicate((tree.take(clients, ids), view, ids), strategy)

    def score(state: RoundState) -> dict[str, ClientScores]:
        zeros: Any = np.zeros((3, n), np.float32)
        served = parallel.replicate(ClientScores(*zeros), strategy)
        for start in range(0, total, part):
            before, served = served, add_part(state.variables, *load_part(start), served)
            jax.block_until_ready(before)
        scores = {"global": jax.device_get(served)}
        if evaluate.is_personal(client):
            own: list[ClientScores] = []
            for ids in groups:
                clients, *rest = load_group(ids, state.clients)
                own.append(score_group(state._replace(clients=clients), *rest, key))
                jax.block_until_ready(own[-2:-1])
            scores["personal"] = jax.tree.map(lambda *some: np.concatenate(some)[:n], *jax.device_get(own))
        return scores

    return score


def gather(examples: Examples, indices: Any, filled: Any, rows: int) -> tuple[Examples, Any]:
    """The examples that a table names, each once and in the order in which they are stored.

    Args:
        examples: the flat copy, ``[N, ...]``.
        indices: int array of any shape.
        filled: which of them count, bool of that shape.
        rows: at least as many as there are different ones.

    Returns:
        Examples ``[rows, ...]``, filled up with whichever, and the table of where they are now, int32, 0 where it
        does not count.

    >>> flat = Examples(np.arange(10) * 10, np.arange(10))
    >>> some, table = gather(flat, np.array([[7, 2], [2, 0]]), np.array([[True, True], [True, False]]), 2)
    >>> some.x.tolist(), table.tolist()
    ([20, 70], [[1, 0], [0, 0]])
    """
    found, places = np.unique(indices[filled], return_inverse=True)
    numbers = np.zeros(max(rows, 1), np.int64)
    numbers[: len(found)] = found
    table = np.zeros(indices.shape, np.int32)
    table[filled] = places
    return jax.tree.map(lambda leaf: leaf[numbers], examples), table


def _filled(split: Split, ids: np.ndarray) -> np.ndarray:
    """Which places of these clients' rows hold an example, ``[len(ids), capacity]``."""
    return np.arange(split.indices.shape[1]) < np.asarray(split.sizes)[ids, None]


def _nothing(n: int) -> Any:
    """A split in which no client has examples."""
    return Split(*(np.zeros(shape, np.int32) for shape in ((n, 0), n)))  # type: ignore[arg-type]
