"""Clock, memory, the machine's ceiling, and a process for each thing that is measured."""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp


def seconds(run: Callable[[], Any], repeats: int = 7) -> float:
    """Median wall time of ``run``, which must return what it waits for; run once before, unmeasured."""
    jax.block_until_ready(run())
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def matmul_peak(size: int = 2048) -> float:
    """Floating-point operations per second of one large float32 product on the default device."""
    a = jnp.ones((size, size), jnp.float32)
    product = jax.jit(lambda a: a @ a)
    return 2 * size**3 / seconds(lambda: product(a))


def peak_memory() -> float:
    """Most memory that this process has held, or its accelerator where there is one, GiB."""
    stats = jax.devices()[0].memory_stats() or {}
    held = stats.get("peak_bytes_in_use", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    return held / 2**30


def spawn(
    module: str,
    arguments: Sequence[str],
    launcher: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Runs a module in a process of its own -> what the last line of its output says in JSON.

    Args:
        module: what ``python -m`` runs.
        arguments: of its command line.
        launcher: arguments of Python between ``python`` and ``-m``, for a module that starts others.
        environment: variables to set beside those of this process.

    Raises:
        RuntimeError: if it fails, with the end of what it said.
    """
    command = [sys.executable, *launcher, "-m", module, *arguments]
    environment = {**os.environ, **(environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
