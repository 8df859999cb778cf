"""Ours against theirs: one table of a run and of what was published of the same experiment."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.preset import Preset, Published
from experiments.report import served
from experiments.settings import Config
from fedjax_geo.simulate import Evaluation, Result


def print_beside(preset: Preset, config: Config, hyperparameters: Mapping[str, Any], result: Result) -> None:
    """One row for each published number of this method, and for our last evaluation; then the remarks."""
    if preset.published:
        _print_table(preset, config, result)
    for line in remarks(preset, config, hyperparameters):
        print(line)


def _print_table(preset: Preset, config: Config, result: Result) -> None:
    table = Table(title=f"{preset.name}, {config.method}: here and published", title_justify="left")
    for heading in ("updates", "mean", "published", "std", "published", "worst 10 %"):
        table.add_column(heading, justify="right")
    table.add_column("published where")
    for updates, ours, theirs in _pairs(preset.numbers(config.method, config), result):
        model = {} if ours is None else ours.summaries[served(result)]
        table.add_row(
            str(updates),
            _number(model.get(preset.metric)),
            "-" if theirs is None else accuracy(theirs),
            _number(model.get("std")),
            _number(None if theirs is None else theirs.std),
            _number(model.get("worst10")),
            "-" if theirs is None else theirs.where,
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def remarks(preset: Preset, config: Config, hyperparameters: Mapping[str, Any]) -> list[str]:
    """What to know before comparing: settings that differ, those that are our choice, and the preset's note."""
    expected = preset.hyperparameters(config.method)
    changed = preset.changed(config) + [
        f"{name}={value} (preset: {expected[name]})"
        for name, value in hyperparameters.items()
        if name in expected and value != expected[name]
    ]
    lines = [
        "" if preset.published else "an experiment of ours, in no paper",
        f"another experiment than the preset: {', '.join(changed)}" if changed else "",
        f"our choice, not the paper's: {', '.join(preset.ours)}" if preset.ours else "",
        preset.note,
    ]
    return [line for line in lines if line]


def accuracy(number: Published, unit: float = 1.0, digits: int = 3) -> str:
    """A published accuracy with its error bar or, after a tilde, what is only known roughly."""
    bar = "" if number.bar is None else f" ± {unit * number.bar:.{digits}f}"
    return f"{'~' if number.error is None else ''}{unit * number.mean:.{digits}f}{bar}"


def _pairs(numbers: list[Published], result: Result) -> Iterator[tuple[int, Evaluation | None, Published | None]]:
    """Updates so far, our evaluation then, and a published number of that time; the last evaluation is there."""
    evaluated = {e.round: e for e in result.evaluations}
    last = result.evaluations[-1].round
    matched = set()
    for number in sorted(numbers, key=lambda n: n.round or 0):
        wanted = last if number.round is None else number.round
        at = (
            wanted + 1 if wanted + 1 in evaluated else wanted
        )  # CRAFT's authors have made t + 1 updates in round t
        matched.add(at)
        yield at, evaluated.get(at), number
    if last not in matched:
        yield last, evaluated[last], None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
