"""Clock, memory, and the machine's ceiling."""

import importlib.metadata
import importlib.util
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable
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


def machine() -> str:
    """What the figures were measured with."""
    device = jax.devices()[0]
    kind = f"{os.cpu_count()} CPU cores" if device.platform == "cpu" else device.device_kind
    versions = f"Python {platform.python_version()}, JAX {jax.__version__}"
    if importlib.util.find_spec("torch"):
        versions += f", PyTorch {importlib.metadata.version('torch')}"
    return f"{kind} ({platform.machine()}), {versions}"
