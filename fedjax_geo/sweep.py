"""Many runs in one compiled program: seeds, and numbers such as learning rates, as one more axis."""

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_geo import _validate, evaluate, layers, parallel
from fedjax_geo.batches import Work, check_work
from fedjax_geo.objective import cross_entropy
from fedjax_geo.round import check_round, make_round
from fedjax_geo.simulate import (
    Result,
    first_broken,
    make_block,
    make_scores,
    read_metrics,
    read_scores,
    within_memory,
)
from fedjax_geo.types import Array, FederatedData, Method, Model, PyTree, Task


def sweep(
    make_method: Callable[[Any], Method],
    model: Model,
    data: FederatedData,
    *,
    seeds: Sequence[int],
    settings: PyTree = None,
    rounds: int,
    cohort: int,
    work: Work = Work(),
    eval_every: int = 10,
    strategy: parallel.Strategy | None = None,
    side_by_side: int | None = None,
    example_loss: Callable[[Array, Array], Array] = cross_entropy,
    diagnose: layers.Grouping | None = layers.module,
) -> list[Result]:
    """Several runs of ``simulate`` that differ in their seeds and, if wanted, in numbers of their methods.

    Run ``i`` is ``simulate(make_method(settings[i]), model, data, seed=seeds[i], ...)``, to rounding: the same
    initial model, cohorts and shuffles. Initial models, rounds and evaluations of all runs are one program,
    compiled once; the data exists once. Nothing is told before all of it has run.

    Runs side by side are vmapped. On a CPU that turns the matmuls of one client into batched ones, which may be
    slower than separate runs; the default there is one run after another. An accelerator takes all at once.

    Args:
        make_method: from one run's settings to its method. Called with each run's numbers, so that what a
            constructor refuses is found before anything is compiled, and once more with traced arrays in their
            place, which Python cannot compare or convert.
        model: to train.
        data: the federation, shared by the runs.
        seeds: one for each run, ``r``.
        settings: a tree of arrays ``[r, ...]``; None: ``make_method`` is given None.
        rounds: server updates.
        cohort: clients per round, m.
        work: batch size and local epochs or steps.
        eval_every: rounds between evaluations.
        strategy: layout of each run's cohort over devices, default ``parallel.default_strategy()``.
        side_by_side: runs in one vmap; such chunks follow one another. Default 1 on a CPU, otherwise all.
        example_loss: loss per example, ``(logits [b, c], labels [b]) -> [b]``.
        diagnose: see ``make_round``.

    Returns:
        A result for each run. ``compile_seconds`` is that of the one program and ``round_seconds`` its wall time,
        evaluations included, divided by rounds: both belong to all runs together. A run that diverges goes on with
        its last good model, and a warning says so.

    Raises:
        ValueError: for arguments that do not fit, before anything is compiled.
        MemoryError: the runs do not fit into memory.
    """
    rounds = _validate.at_least("rounds", rounds, 0)
    eval_every = _validate.at_least("eval_every", eval_every, 1)
    cohort = _validate.at_least("cohort", cohort, 1)
    check_work(work)
    strategy = parallel.check(parallel.default_strategy() if strategy is None else strategy)
    side_by_side = _check_side_by_side(side_by_side, len(seeds), strategy)
    for setting in _one_by_one(settings, len(seeds)):
        check_round(make_method(setting), data, cohort)

    task = Task(model, data.prepare, example_loss)
    evaluated = strategy._replace(chunk=strategy.chunk or cohort)
    full, rest = divmod(rounds, eval_every)
    counts = [0, *[eval_every] * full, *[rest] * (rest > 0)]  # rounds before each evaluation

    def experiment(run: tuple, shared: tuple) -> tuple:
        (key, setting), (data, split, counts) = run, shared
        with jax.ensure_compile_time_eval():  # constructors check the numbers that are not traced
            method = make_method(setting)
        process = make_round(method, task, cohort=cohort, work=work, strategy=strategy, diagnose=diagnose)
        block, scores = make_block(process, eval_every), make_scores(task, method.client, evaluated, work)

        def advance(state: Any, count: Array) -> tuple:
            state, metrics = block(state, key, data, count)
            return state, (metrics, scores(state, key, data, split))

        return jax.lax.scan(advance, process.init(key, data), counts)

    def all_runs(runs: tuple, shared: tuple) -> tuple:
        return parallel.map_clients(experiment, runs, shared, parallel.Strategy(chunk=side_by_side))

    runs = (jnp.stack([jax.random.key(seed) for seed in seeds]), jax.tree.map(jnp.asarray, settings))
    shared = (data, evaluate.flatten(data.test), jnp.asarray(counts, jnp.int32))
    runs, shared = parallel.replicate((runs, shared), strategy)
    begin = time.perf_counter()
    with within_memory("a sweep", f"side_by_side (now {side_by_side})", f"cohort (now {cohort})"):
        program = jax.jit(all_runs, out_shardings=parallel.replicated(strategy)).lower(runs, shared).compile()
        compiled = time.perf_counter()
        states, history = program(runs, shared)
        history = jax.device_get(history)
    seconds = {"compile": compiled - begin, "round": (time.perf_counter() - compiled) / max(rounds, 1)}

    results = []
    for i in range(len(seeds)):
        state, (metrics, scores) = jax.tree.map(lambda leaf, i=i: leaf[i], (states, history))
        done = np.cumsum(counts)
        result = Result(state, compile_seconds=seconds["compile"], round_seconds=seconds["round"])
        for block, count in enumerate(counts):
            here = jax.tree.map(lambda leaf, block=block: leaf[block], scores)
            result.evaluations.append(read_scores(int(done[block]), here))
            own = {name: values[block] for name, values in metrics.items()}
            result.metrics += read_metrics(own, int(done[block]) - count + 1, count)
        result.diverged_at = first_broken(result.metrics)
        if result.diverged_at is not None:
            text = f"run {i}: no client that answered in round {result.diverged_at} had a finite update"
            warnings.warn(text, stacklevel=2)
        results.append(result)
    return results


def _check_side_by_side(side_by_side: int | None, runs: int, strategy: parallel.Strategy) -> int:
    if runs == 0:
        raise ValueError("seeds must hold at least one seed, got none")
    on_cpu = jax.default_backend() == "cpu"
    if side_by_side is None:
        side_by_side = 1 if on_cpu else runs
    side_by_side = _validate.at_least("side_by_side", side_by_side, 1)
    if strategy.halvings and side_by_side > 1:
        raise ValueError(f"strategy.halvings must be 0 with runs side by side, got {strategy.halvings}")
    if on_cpu and strategy.num_devices > 1 and side_by_side > 1:
        # Batched linear algebra of several CPU devices in one process can wait for ever.
        raise ValueError(f"side_by_side must be 1 with a mesh of CPU devices, got {side_by_side}")
    return side_by_side


def _one_by_one(settings: PyTree, runs: int) -> list[PyTree]:
    """The settings of each run, as numbers on the host."""
    settings = jax.tree.map(np.asarray, settings)
    for leaf in jax.tree.leaves(settings):
        if leaf.shape[:1] != (runs,):
            raise ValueError(f"settings must have a leading axis of the {runs} seeds, got shape {leaf.shape}")
    return [jax.tree.map(lambda leaf, i=i: leaf[i], settings) for i in range(runs)]
