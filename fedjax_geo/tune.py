"""Which layout is the fastest: a few rounds of each are timed on the user's own model, data and cohort.

The answer is remembered in a small file of the folder in which ``data`` keeps decoded data sets. The file's name
is a hash of all that the answer depends on: the machine's devices, versions, the layouts compared, local steps,
and the text of a round's program, which holds the model, the method, all shapes, the cohort and the batch size.
"""

import hashlib
import json
import math
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fedjax_geo
from fedjax_geo import _validate, layers, parallel
from fedjax_geo.batches import Work, check_work, num_local_steps
from fedjax_geo.data._cache import cache_root
from fedjax_geo.objective import cross_entropy
from fedjax_geo.parallel import Strategy
from fedjax_geo.round import Round, check_round, make_round
from fedjax_geo.simulate import make_block, within_memory
from fedjax_geo.types import Array, FederatedData, Key, Method, Model, Task

Timer = Callable[[Callable[[], object]], float]

_TIMED = 3  # rounds of each layout, after one that warms up
_COMPARED = 4  # chunks on an accelerator: the whole cohort, a half, a quarter, an eighth


class Choice(NamedTuple):
    """The layout chosen, and what it was chosen from.

    Attributes:
        strategy: the fastest layout.
        seconds: of a round, the median for each layout; infinite where it ran out of memory.
    """

    strategy: Strategy
    seconds: dict[Strategy, float]

    def __str__(self) -> str:
        """One line.

        >>> print(Choice(Strategy(4), {Strategy(4): 0.25, Strategy(): math.inf}))
        1 device, chunk 4 (seconds a round: 1 device, chunk 4: 0.25; 1 device, whole cohort: out of memory)
        """
        table = (
            f"{describe(layout)}: " + (f"{seconds:.3g}" if math.isfinite(seconds) else "out of memory")
            for layout, seconds in self.seconds.items()
        )
        return f"{describe(self.strategy)} (seconds a round: {'; '.join(table)})"


def describe(strategy: Strategy) -> str:
    """A layout in words.

    >>> describe(Strategy(chunk=8))
    '1 device, chunk 8'
    """
    devices = strategy.num_devices
    chunk = "whole cohort" if strategy.chunk is None else f"chunk {strategy.chunk}"
    halvings = f", {strategy.halvings} halvings" if strategy.halvings else ""
    return f"{devices} device{'s' * (devices > 1)}, {chunk}{halvings}"


def wall_time(call: Callable[[], object]) -> float:
    """Seconds until everything that ``call`` returns is computed."""
    begin = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - begin


def default_layouts(cohort: int, *, cpu: bool | None = None) -> tuple[list[Strategy], list[Strategy]]:
    """Layouts worth comparing, and those to fall back on, in turn, when none of them fits into memory.

    On a CPU one client at a time, with and without two halvings of the last batch, and four, on one device and on
    all of them. On an accelerator the whole cohort at once, a half, a quarter and an eighth of it, on all devices,
    then smaller chunks down to one client.

    Args:
        cohort: clients per round, m.
        cpu: of which kind the devices are; None: as they are.
    """
    devices = min(len(jax.devices()), cohort)
    shared = [parallel.clients_mesh(devices)] if devices > 1 else []
    per_device = -(-cohort // devices)
    if jax.default_backend() == "cpu" if cpu is None else cpu:
        forms = [Strategy(1), Strategy(1, halvings=2), Strategy(4)][: 3 if per_device > 1 else 2]
        return [form._replace(mesh=mesh) for mesh in [None, *shared] for form in forms], []
    chunks = [per_device]
    while chunks[-1] > 1:
        chunks.append(-(-chunks[-1] // 2))
    mesh = shared[0] if shared else None
    layouts = [Strategy(None if c == per_device else c, mesh) for c in chunks]
    return layouts[:_COMPARED], layouts[_COMPARED:]


def measured_strategy(
    method: Method,
    model: Model,
    data: FederatedData,
    *,
    cohort: int,
    work: Work = Work(),
    example_loss: Callable[[Array, Array], Array] = cross_entropy,
    diagnose: layers.Grouping | None = layers.module,
    candidates: Sequence[Strategy] | None = None,
    seed: int = 0,
    cache: bool | Path = True,
    timer: Timer = wall_time,
) -> Choice:
    """The layout with the fastest rounds, measured once and then remembered.

    Every layout is compiled, and trains the same four cohorts from the same model; the first is not timed. That
    takes as long as that many compilations and rounds. Reading a remembered answer takes one tracing of a round.

    Args:
        method: client, weighting, server, as for ``simulate``; so are the arguments that follow.
        model: to train.
        data: the federation.
        cohort: clients per round, m.
        work: batch size and local epochs or steps.
        example_loss: loss per example.
        diagnose: see ``make_round``.
        candidates: layouts to compare; default ``default_layouts(cohort)``.
        seed: of model and cohorts.
        cache: remember in the library's cache folder, not at all, or in this folder.
        timer: calls a function that trains one round, and returns the seconds it took.

    Returns:
        ``Choice(strategy, seconds)``; ``simulate(..., strategy=choice.strategy)``.

    Raises:
        ValueError: for arguments that do not fit, before anything is compiled.
        MemoryError: no layout fits into memory.
    """
    cohort = _validate.at_least("cohort", cohort, 1)
    check_work(work)
    check_round(method, data, cohort)
    compared, spare = default_layouts(cohort) if candidates is None else (list(candidates), [])
    if not compared:
        raise ValueError("candidates must hold at least one layout, got none")
    layouts = [parallel.check(layout) for layout in (*compared, *spare)]
    task = Task(model, data.prepare, example_loss)

    def process(layout: Strategy) -> Round:
        return make_round(method, task, cohort=cohort, work=work, strategy=layout, diagnose=diagnose)

    key = jax.random.key(seed)
    file = None
    if cache is not False:
        facts = _facts(process(Strategy(1)), key, data, cohort, work, layouts)
        name = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]
        file = (cache_root() if cache is True else cache) / f"layout-{name}.json"
        seconds = _read(file, facts, len(layouts))
        if seconds is not None:
            return _fastest(layouts, seconds)

    seconds = []
    for layout in layouts:
        if len(seconds) >= len(compared) and min(seconds) < math.inf:
            break  # the spare ones are for want of memory only
        try:
            with within_memory(describe(layout), "its chunk"):
                seconds.append(_measure(process(layout), layout, key, data, timer))
        except MemoryError:
            seconds.append(math.inf)
    if min(seconds) == math.inf:
        smallest = min(layout.chunk or cohort for layout in layouts)
        chunk = f"chunk (candidates with less than {smallest}), " if smallest > 1 else ""
        raise MemoryError(
            f"none of {len(layouts)} layouts fits into memory: lower {chunk}cohort (now {cohort}) "
            f"or work.batch_size (now {work.batch_size})"
        )
    if file is not None:
        _write(file, facts, seconds)
    return _fastest(layouts, seconds)


def _fastest(layouts: Sequence[Strategy], seconds: Iterable[float]) -> Choice:
    table = dict(zip(layouts, seconds, strict=False))  # the spare layouts may not have been tried
    return Choice(min(table, key=table.__getitem__), table)


def _measure(process: Round, layout: Strategy, key: Key, data: FederatedData, timer: Timer) -> float:
    """Median seconds of a round, in the program that ``simulate`` runs; the first, which compiles, is left out."""
    data, key = parallel.replicate((data, key), layout)
    block = jax.jit(make_block(process, 1), donate_argnums=0, out_shardings=parallel.replicated(layout))
    state = None

    def train() -> object:
        nonlocal state
        if state is None:
            state = parallel.replicate(jax.jit(process.init)(key, data), layout)
        state, metrics = block(state, key, data, jnp.int32(1))
        return state, metrics

    return statistics.median([timer(train) for _ in range(1 + _TIMED)][1:])


def _facts(
    process: Round, key: Key, data: FederatedData, cohort: int, work: Work, layouts: Sequence[Strategy]
) -> dict[str, Any]:
    """All that the answer depends on, as JSON holds it."""
    state = jax.eval_shape(process.init, key, data)
    program = jax.jit(process.step).lower(state, key, data).as_text()
    steps = np.asarray(num_local_steps(jnp.asarray(data.train.sizes), work))
    return {
        "backend": jax.default_backend(),
        "device": jax.devices()[0].device_kind,
        "devices": len(jax.devices()),
        "cores": os.cpu_count(),
        "jax": jax.__version__,
        "fedjax_geo": fedjax_geo.__version__,
        "layouts": [
            [s.chunk, None if s.mesh is None else [d.id for d in s.mesh.devices.flat], s.halvings] for s in layouts
        ],
        "cohort": cohort,
        "work": list(work),
        "local_steps": [int(steps.sum()), int(steps.max())],
        "program": hashlib.sha256(program.encode()).hexdigest(),
    }


def _read(file: Path, facts: dict[str, Any], most: int) -> list[float] | None:
    """The remembered seconds; None where there are none or damaged ones."""
    try:
        stored = json.loads(file.read_text("utf-8"))
        seconds = [math.inf if value is None else float(value) for value in stored["seconds"]]
        sound = stored["facts"] == facts and len(seconds) <= most and 0 <= min(seconds) < math.inf
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return seconds if sound else None


def _write(file: Path, facts: dict[str, Any], seconds: Sequence[float]) -> None:
    """Written aside and renamed, so that nobody reads a half."""
    plain = [value if math.isfinite(value) else None for value in seconds]
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(json.dumps({"facts": facts, "seconds": plain}, indent=1), "utf-8")
        aside.replace(file)
    except OSError as error:
        warnings.warn(f"{file}: the measured layouts cannot be kept ({error})", stacklevel=3)


__all__ = ["Choice", "Timer", "default_layouts", "describe", "measured_strategy", "wall_time"]
