"""What the scripts share: a table on the terminal and a figure on disk."""

import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

import jax
import matplotlib
import numpy as np
from rich.console import Console
from rich.table import Table

from fedjax_geo.simulate import Result

matplotlib.use("Agg")
from matplotlib import pyplot as plt

_COLUMNS = {
    "client_mean": "mean",
    "std": "std",
    "noise_floor": "noise floor",
    "worst10": "worst 10 %",
    "best10": "best 10 %",
    "jain": "Jain",
    "loss": "loss",
}


def machine() -> str:
    """What the figures were measured with."""
    device = jax.devices()[0]
    kind = f"{os.cpu_count()} CPU cores" if device.platform == "cpu" else device.device_kind
    return f"{kind} ({platform.machine()}), Python {platform.python_version()}, JAX {jax.__version__}"


def served(result: Result) -> str:
    """Which model's numbers to show: the personal ones where a method has some."""
    return "personal" if "personal" in result.evaluations[-1].summaries else "global"


def print_table(results: Mapping[str, Result], title: str) -> None:
    """One row for each run: accuracy over clients after the last round, conflict, speed."""
    table = Table(title=title, title_justify="left")
    table.add_column("method")
    for heading in (*_COLUMNS.values(), "conflict", "s / round"):
        table.add_column(heading, justify="right")
    for name, result in results.items():
        summary = result.evaluations[-1].summaries[served(result)]
        values = [f"{summary[key]:.3f}" for key in _COLUMNS]
        shares = [m["conflict_share"] for m in result.metrics if "conflict_share" in m]
        conflict = f"{100 * np.mean(shares):.1f} %" if shares else "-"
        table.add_row(name, *values, conflict, f"{result.round_seconds:.3f}")
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def save_figure(results: Mapping[str, Result], title: str, path: Path) -> Path:
    """Accuracy over rounds and the spread over clients at the end, side by side."""
    figure, (curves, spread) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    finals = []
    for result in results.values():
        key = served(result)
        rounds = [e.round for e in result.evaluations]
        curves.plot(rounds, [e.summaries[key]["client_mean"] for e in result.evaluations], marker=".")
        last = result.evaluations[-1].accuracies[key]
        finals.append(last[~np.isnan(last)])
    curves.set(xlabel="round", ylabel="mean accuracy over clients", ylim=(0, 1))
    curves.legend(list(results), loc="lower right")
    curves.grid(alpha=0.3)
    spread.boxplot(finals, whis=(0, 100), tick_labels=list(results))
    jitter = np.random.default_rng(0)
    for i, values in enumerate(finals, start=1):
        if len(values) <= 100:
            spread.plot(i + jitter.uniform(-0.12, 0.12, len(values)), values, "o", alpha=0.4, markersize=4)
    spread.set(ylabel="accuracy of each client after the last round")
    spread.grid(alpha=0.3, axis="y")
    figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
