"""How the cost of a round grows: with the cohort, the population, the model and the chunk.

    python -m benchmarks.scale --out docs/figures/scale.png

Fashion-MNIST. Clients hold 57 examples each, as many as the average client of a thousand, drawn with replacement:
a population of 100,000 has more clients than the data has examples, and only time is measured here. There are no
diagnostics, so that methods that average need not hold all updates. The first round is timed with its compilation.
Each point is a process of its own; keep the machine quiet.
"""

import dataclasses
import json
import os
import sys
import time
from pathlib import Path

import tyro

EXAMPLES = 57


@dataclasses.dataclass(frozen=True)
class Point:
    """One setting of a sweep."""

    model: str = "mlp"
    cohort: int = 100
    population: int = 1000
    chunk: int = 1
    devices: int = 1
    method: str = "fedavg"


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the sweeps.

    Attributes:
        cohorts: clients of a round, for MLP and CNN.
        populations: clients to draw 100 from, for the MLP and for SCAFFOLD, which keeps a state for each.
        chunks: clients side by side.
        repeats: timed rounds of each point after one that is not; the median counts.
        out: figure; the table beside it is printed.
        point: run one point in this process and print it as JSON; what the sweeps are made of.
    """

    cohorts: tuple[int, ...] = (10, 30, 100, 300, 1000)
    populations: tuple[int, ...] = (100, 1000, 10_000, 100_000)
    chunks: tuple[int, ...] = (1, 4, 20, 100)
    repeats: int = 3
    out: Path | None = None
    point: str | None = None


def sweeps(config: Config) -> dict[str, list[Point]]:
    """Name of each sweep -> its points."""
    models = ("mlp", "cnn", "resnet20", "resnet110")
    return {
        "cohort, MLP": [Point(cohort=m) for m in config.cohorts],
        "cohort, CNN": [Point("cnn", cohort=m) for m in config.cohorts],
        "cohort, MLP by CRAFT": [Point(cohort=m, method="craft") for m in config.cohorts],
        "population, FedAvg": [Point(population=n) for n in config.populations],
        "population, SCAFFOLD": [Point(population=n, method="scaffold") for n in config.populations if n <= 1000],
        "model, 10 clients": [Point(model, cohort=10) for model in models],
        "chunk, MLP": [Point(chunk=c) for c in config.chunks],
    }


def run_point(point: Point, repeats: int) -> dict[str, float]:
    """Seconds of one round, of the first with its compilation, and memory."""
    from benchmarks.jax_rounds import use_devices

    strategy = use_devices(point.devices)

    import jax
    import numpy as np

    from benchmarks.measure import peak_memory, seconds
    from benchmarks.workload import BATCH_SIZE, LEARNING_RATE, WORKLOADS, fashion_mnist
    from fedjax_geo import Work, methods, parallel
    from fedjax_geo.objective import cross_entropy
    from fedjax_geo.round import make_round
    from fedjax_geo.types import FederatedData, Split, Task

    workload = WORKLOADS[point.model]
    source = fashion_mnist(workload.colour)
    random = np.random.default_rng(0)
    indices = random.integers(0, source.num_train, (point.population, EXAMPLES), np.int32)
    split = Split(indices, np.full(point.population, EXAMPLES, np.int32))  # type: ignore[arg-type]
    names = tuple(map(str, range(point.population)))
    data = FederatedData(source.examples(), split, split, None, 10, source.prepare, names, source.provenance)
    data = parallel.replicate(data, strategy)
    method = methods.find(point.method)(lr=LEARNING_RATE)
    task = Task(workload.model(10), data.prepare, cross_entropy)
    strategy = strategy._replace(chunk=point.chunk)
    process = make_round(
        method, task, cohort=point.cohort, work=Work(BATCH_SIZE), strategy=strategy, diagnose=None
    )
    key = jax.random.key(0)
    state = jax.jit(process.init)(key, data)
    step = jax.jit(process.step, donate_argnums=0)
    held = [state]

    def round_() -> object:
        held[0], metrics = step(held[0], key, data)
        return metrics

    begin = time.perf_counter()
    jax.block_until_ready(round_())
    first = time.perf_counter() - begin
    return {"seconds": seconds(round_, repeats), "first": first, "memory": peak_memory()}


def draw(results: dict[str, list[tuple[Point, dict[str, float]]]], out: Path) -> None:
    """Seconds against the clients of a round, and against the population."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained", sharey=True)
    for axis, start, field, label in (
        (left, "cohort", "cohort", "clients of a round"),
        (right, "population", "population", "clients of the population, 100 a round"),
    ):
        for name, points in results.items():
            if name.startswith(start) and points:
                x = [getattr(point, field) for point, _ in points]
                axis.loglog(x, [result["seconds"] for _, result in points], "o-", label=name.split(", ")[1])
        axis.set_xlabel(label)
        axis.legend()
    left.set_ylabel("seconds a round")
    figure.savefig(out, dpi=120)


def main(config: Config) -> None:
    """Run the sweeps and print the table."""
    if config.point is not None:
        print(json.dumps(run_point(Point(**json.loads(config.point)), config.repeats)))
        return
    from benchmarks.measure import spawn
    from experiments.report import machine

    print(f"`python -m benchmarks.scale` on {machine()}; {os.cpu_count()} cores, one device\n")
    print("| sweep | model | clients | of | chunk | s / round | clients / s | first round, s | memory, GiB |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    results: dict[str, list[tuple[Point, dict[str, float]]]] = {}
    for name, points in sweeps(config).items():
        results[name] = []
        for point in points:
            options = ["--repeats", str(config.repeats), "--point", json.dumps(dataclasses.asdict(point))]
            result = spawn("benchmarks.scale", options)
            results[name].append((point, result))
            rate = point.cohort / result["seconds"]
            setting = f"{point.model} | {point.cohort} | {point.population} | {point.chunk}"
            figures = f"{result['seconds']:.4f} | {rate:.1f} | {result['first']:.1f} | {result['memory']:.2f}"
            print(f"| {name} | {setting} | {figures} |", flush=True)
    if config.out is not None:
        draw(results, config.out)


if __name__ == "__main__":
    try:
        main(tyro.cli(Config))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
