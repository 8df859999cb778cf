"""What a run leaves behind: a folder of plain files, and a progress bar while it goes."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fedjax_geo.simulate import Event


def _plain(value: Any) -> Any:
    """JSON has no NaN: what is not finite becomes null."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def run_folder(path: str | Path, config: dict[str, Any]) -> Callable[[Event], None]:
    """A callback that writes a run to a folder as it goes.

    * ``config.json``: the configuration as given; it should name the data's provenance.
    * ``metrics.jsonl``: one line for each round.
    * ``evaluations.jsonl``: one line for each evaluation: round, and the summaries by model.
    * ``clients.jsonl``: one line for each evaluation: round, and each client's accuracy by model
      (null where a client has no test examples).

    Args:
        path: a folder, made when the first rounds are told.
        config: anything that JSON can hold.

    Raises:
        FileExistsError: if the folder already holds a run; nothing is overwritten.
        TypeError: if the configuration holds what JSON cannot.
    """
    folder = Path(path)
    if (folder / "config.json").exists():
        raise FileExistsError(f"{folder} already holds a run: choose another folder or remove it")
    text = json.dumps(_plain(config), indent=2) + "\n"

    def append(name: str, rows: list[dict[str, Any]]) -> None:
        with (folder / name).open("a") as file:
            file.writelines(json.dumps(_plain(row)) + "\n" for row in rows)

    def callback(event: Event) -> None:
        evaluation = event.evaluation
        if not (folder / "config.json").exists():  # a run that fails before its first round leaves nothing behind
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "config.json").write_text(text)
        append("metrics.jsonl", event.metrics)
        append("evaluations.jsonl", [{"round": evaluation.round, **evaluation.summaries}])
        append("clients.jsonl", [{"round": evaluation.round, **evaluation.accuracies}])

    return callback


def read_lines(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a ``.jsonl`` file."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


class ProgressBar:
    """A progress bar over several runs: round, accuracy, rounds per second.

    Use as a context manager; ``run(name)`` gives the callback of one run.
    """

    def __init__(self) -> None:
        """An empty bar, drawn on entry."""
        self._bar = Progress(
            TextColumn("{task.description:<14}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("accuracy {task.fields[accuracy]}  {task.fields[speed]}"),
            TimeRemainingColumn(),
        )

    def __enter__(self) -> "ProgressBar":
        """Start drawing."""
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop drawing, also after an error."""
        self._bar.stop()

    def run(self, name: str, rounds: int) -> Callable[[Event], None]:
        """A line of the bar, as a callback of ``simulate``."""
        task: TaskID = self._bar.add_task(name, total=rounds, accuracy="  -  ", speed="compiling")

        def callback(event: Event) -> None:
            fields: dict[str, Any] = {}
            summary = event.evaluation.summaries["global"]
            if summary["clients"]:
                fields["accuracy"] = f"{summary['client_mean']:.3f}"
            if event.metrics:
                fields["speed"] = f"{len(event.metrics) / max(event.seconds['train'], 1e-9):.1f} rounds/s"
            self._bar.update(task, advance=len(event.metrics), **fields)

        return callback
