"""Many rounds: blocks under one jit, evaluation between them, records on the host."""

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_geo import _validate, evaluate, layers, parallel, tree
from fedjax_geo.batches import Work, check_work
from fedjax_geo.objective import cross_entropy
from fedjax_geo.round import Round, check_round, make_round
from fedjax_geo.stream import Advance, Home, on_host
from fedjax_geo.types import Array, ClientAlgorithm, FederatedData, Key, Method, Model, RoundState, Task


@dataclass(frozen=True)
class Evaluation:
    """The model after ``round`` server updates (0: untouched), on all clients' test examples.

    Attributes:
        round: finished rounds.
        summaries: ``evaluate.summarize`` of the ``global`` model, and of the ``personal`` models where the
            method has some.
        accuracies: accuracy of each client, ``[n]``, by the same names.
    """

    round: int
    summaries: dict[str, dict[str, float]]
    accuracies: dict[str, np.ndarray]


@dataclass(frozen=True)
class Event:
    """What a callback is told after every block of rounds.

    Attributes:
        total_rounds: rounds of the whole run.
        metrics: one entry for each round of the block, with its number ``round`` (from 1).
        evaluation: of the model after the block.
        state: the state after the block, on the device; with ``stream``, its ``clients`` in host memory. The next
            block takes its memory, so a callback that wants to keep it must copy it.
        seconds: wall time of the block's training and of its evaluation.
    """

    total_rounds: int
    metrics: list[dict[str, float]]
    evaluation: Evaluation
    state: RoundState
    seconds: dict[str, float]


Callback = Callable[[Event], None]


@dataclass
class Result:
    """A finished run.

    Attributes:
        state: after the last round; with ``stream``, its ``clients`` in host memory.
        evaluations: round 0 first.
        metrics: one entry for each round.
        compile_seconds: tracing and compiling the rounds; with ``stream``, reading the first cohort, too.
        round_seconds: wall time of training, divided by rounds.
        diverged_at: the first round in which no client that answered had a finite update. The run stopped after
            the block that holds it.
    """

    state: RoundState
    evaluations: list[Evaluation] = field(default_factory=list)
    metrics: list[dict[str, float]] = field(default_factory=list)
    compile_seconds: float = 0.0
    round_seconds: float = 0.0
    diverged_at: int | None = None


@contextlib.contextmanager
def within_memory(what: str, *lower: str) -> Iterator[None]:
    """Running out of memory inside becomes a ``MemoryError`` that names what does not fit and what to lower."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error) and "out of memory" not in str(error).lower():
            raise
        raise MemoryError(f"{what} does not fit into memory: lower {' or '.join(lower)}") from error


def make_block(process: Round, length: int) -> Callable[..., tuple[RoundState, dict[str, Array]]]:
    """Several rounds as one function ``(state, key, data, count) -> (state, metrics [length])``.

    ``count`` may be traced and at most ``length``, so that a shorter last block needs no second compilation.
    """

    def block(
        state: RoundState, key: Key, data: FederatedData, count: Array
    ) -> tuple[RoundState, dict[str, Array]]:
        like = jax.eval_shape(process.step, state, key, data)[1]
        buffers = jax.tree.map(lambda m: jnp.zeros((length, *m.shape), m.dtype), like)

        def one(i: Array, carry: tuple) -> tuple:
            state, buffers = carry
            state, metrics = process.step(state, key, data)
            return state, jax.tree.map(lambda b, value: b.at[i].set(value), buffers, metrics)

        return jax.lax.fori_loop(0, count, one, (state, buffers))

    return block


def make_scores(
    task: Task, client: ClientAlgorithm, strategy: parallel.Strategy, work: Work
) -> Callable[[RoundState, Key, FederatedData, evaluate.FlatSplit], dict[str, evaluate.ClientScores]]:
    """A pure function that scores a state on all clients' test examples, by the names of ``Evaluation``."""

    def score(
        state: RoundState, key: Key, data: FederatedData, split: evaluate.FlatSplit
    ) -> dict[str, evaluate.ClientScores]:
        served = evaluate.score_global(
            task, state.variables, data.examples, split, data.num_clients, strategy=strategy
        )
        scores = {"global": served}
        if evaluate.is_personal(client):
            scores["personal"] = evaluate.score_personal(
                task,
                client,
                state.variables,
                state.clients,
                data,
                strategy,
                work=work,
                round=state.round,
                key=key,
            )
        return scores

    return score


def read_scores(round: int, scores: dict[str, evaluate.ClientScores]) -> Evaluation:
    """Scores, on the host, as what a person reads."""
    return Evaluation(
        round=round,
        summaries={name: evaluate.summarize(s) for name, s in scores.items()},
        accuracies={name: evaluate.accuracies(s) for name, s in scores.items()},
    )


def read_metrics(buffers: dict[str, np.ndarray], first: int, count: int) -> list[dict[str, float]]:
    """The first ``count`` entries of a block's metrics, on the host, one dictionary a round from ``first``."""
    return [
        {"round": first + i, **{name: float(values[i]) for name, values in buffers.items()}} for i in range(count)
    ]


def first_broken(metrics: list[dict[str, float]]) -> int | None:
    """The first round in which no client that answered had a finite update."""
    return next((int(m["round"]) for m in metrics if m["skipped"] and m["nonfinite_clients"]), None)


def on_device(
    process: Round,
    task: Task,
    method: Method,
    data: FederatedData,
    key: Key,
    strategy: parallel.Strategy,
    work: Work,
    side_by_side: int,
) -> Home:
    """The whole population on the device, or on each of a mesh: a block of rounds is one program.

    Args:
        process: the rounds.
        task: model and loss.
        method: whose rounds they are.
        data: the federation.
        key: of the run.
        strategy: the layout; where it has no chunk, personal models are evaluated in chunks of ``side_by_side``.
        work: of the rounds, and the batches of clients that adapt before they are evaluated.
        side_by_side: see strategy.
    """
    lower = "the number of its clients or examples, or keep it in host memory by stream=True"
    with within_memory("the population", lower):
        split = parallel.replicate(evaluate.flatten(data.test), strategy)
        data = parallel.replicate(data, strategy)
    score = jax.jit(
        make_scores(task, method.client, strategy._replace(chunk=strategy.chunk or side_by_side), work)
    )

    def init() -> RoundState:
        with within_memory("the population", lower):
            return parallel.replicate(jax.jit(process.init)(key, data), strategy)

    def copy(state: RoundState) -> RoundState:
        return parallel.replicate(jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), state), strategy)

    def compile(state: RoundState, rounds: int, length: int) -> Advance:
        del rounds
        block = make_block(process, length)
        block = jax.jit(block, donate_argnums=0, out_shardings=parallel.replicated(strategy))
        compiled = block.lower(state, key, data, jnp.int32(0)).compile()

        def advance(state: RoundState, count: int) -> tuple[RoundState, dict[str, np.ndarray]]:
            state, buffers = compiled(state, key, data, jnp.int32(count))
            return state, jax.device_get(buffers)

        return advance

    return Home(init, copy, compile, lambda state: jax.device_get(score(state, key, data, split)))


def _check_state(state: RoundState, like: RoundState) -> None:
    """A state given to go on from must be one of the same method, model and population."""
    found, expected = (dict(zip(tree.paths(s), jax.tree.leaves(s), strict=True)) for s in (state, like))
    wrong = [f"{path} missing" for path in expected if path not in found]
    wrong += [f"{path} unknown" for path in found if path not in expected]
    wrong += [
        f"{path} is {found[path].shape} {found[path].dtype}, not {leaf.shape} {leaf.dtype}"
        for path, leaf in expected.items()
        if path in found and (found[path].shape, found[path].dtype) != (leaf.shape, leaf.dtype)
    ]
    if wrong:
        raise ValueError(f"state does not fit this method, model and data: {wrong[0]}")


def simulate(
    method: Method,
    model: Model,
    data: FederatedData,
    *,
    rounds: int,
    cohort: int,
    seed: int = 0,
    work: Work = Work(),
    eval_every: int = 10,
    strategy: parallel.Strategy | None = None,
    example_loss: Callable[[Array, Array], Array] = cross_entropy,
    diagnose: layers.Grouping | None = layers.module,
    state: RoundState | None = None,
    callbacks: Sequence[Callback] = (),
    stream: bool = False,
) -> Result:
    """Run a federated method.

    The run is a function of its arguments: the same seed gives the same bits on the same machine, and
    methods with one seed see the same cohorts.

    Args:
        method: client, weighting, server.
        model: to train.
        data: the federation.
        rounds: server updates, exactly.
        cohort: clients per round, m.
        seed: of everything random: initial model, cohorts, shuffles, dropout.
        work: batch size and local epochs or steps.
        eval_every: rounds between evaluations; the untouched and the final model are always evaluated.
        strategy: layout over devices, default ``parallel.default_strategy()``.
        example_loss: loss per example, ``(logits [b, c], labels [b]) -> [b]``.
        diagnose: see ``make_round``.
        state: continue from here (a state of the same method and data) up to ``rounds`` in all.
        callbacks: told after round 0 and after every block.
        stream: keep the population's examples, tables and states in host memory and bring each round's cohort to
            the device; for populations larger than the device.

    Returns:
        The final state and the history. A run none of whose clients train to finite numbers stops with a warning.

    Raises:
        ValueError: for arguments that do not fit, before anything is compiled.
        MemoryError: a round or an evaluation does not fit into memory; says what to lower.
    """
    rounds = _validate.at_least("rounds", rounds, 0)
    eval_every = _validate.at_least("eval_every", eval_every, 1)
    cohort = _validate.at_least("cohort", cohort, 1)
    check_work(work)
    check_round(method, data, cohort)
    strategy = parallel.check(parallel.default_strategy() if strategy is None else strategy)
    task = Task(model, data.prepare, example_loss)
    process = make_round(method, task, cohort=cohort, work=work, strategy=strategy, diagnose=diagnose)

    key = parallel.replicate(jax.random.key(seed), strategy)
    home = (on_host if stream else on_device)(process, task, method, data, key, strategy, work, cohort)
    shapes = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype)), data
    )
    if state is None:
        state = home.init()
    else:
        _check_state(state, jax.eval_shape(process.init, key, shapes))
        state = home.copy(state)  # the blocks take its memory
    jax.eval_shape(process.step, state, key, shapes)  # what does not fit fails here, before anything is told
    result = Result(state)
    lower = [f"cohort (now {cohort})", f"work.batch_size (now {work.batch_size})"]
    if strategy.chunk != 1:
        lower.insert(0, f"strategy.chunk (now {strategy.chunk or 'None, the whole cohort at once'})")
    evaluated = "the size of the model or of its inputs"
    if evaluate.is_personal(method.client):
        evaluated = f"strategy.chunk, the models evaluated side by side (now {strategy.chunk or cohort})"

    def tell(metrics: list[dict[str, float]], seconds: float) -> None:
        begin = time.perf_counter()
        with within_memory("the evaluation", evaluated):
            scores = home.score(result.state)
        result.evaluations.append(read_scores(int(result.state.round), scores))
        result.metrics.extend(metrics)
        spent = {"train": seconds, "evaluate": time.perf_counter() - begin}
        for callback in callbacks:
            callback(Event(rounds, metrics, result.evaluations[-1], result.state, spent))

    done = int(state.round)
    if done == 0:
        tell([], 0.0)
    if done >= rounds:
        return result

    begin = time.perf_counter()
    with within_memory("a round", *lower):
        advance = home.compile(result.state, rounds, eval_every)
    result.compile_seconds = time.perf_counter() - begin

    spent = 0.0
    first = done
    while done < rounds and result.diverged_at is None:
        count = min(eval_every - done % eval_every, rounds - done)
        begin = time.perf_counter()
        with within_memory("a round", *lower):
            result.state, buffers = advance(result.state, count)
        seconds = time.perf_counter() - begin
        spent += seconds
        metrics = read_metrics(buffers, done + 1, count)
        result.diverged_at = first_broken(metrics)
        done += count
        result.round_seconds = spent / (done - first)
        tell(metrics, seconds)
    if result.diverged_at is not None:
        text = f"stopped: no client that answered in round {result.diverged_at} had a finite update"
        warnings.warn(text, stacklevel=2)
    return result


__all__ = [
    "Callback",
    "Evaluation",
    "Event",
    "Result",
    "make_block",
    "make_scores",
    "read_scores",
    "simulate",
    "within_memory",
]
