"""Methods on one federation, several seeds: a comparison table, or one for each of several presets.

Unless said otherwise every method on Fashion-MNIST, 100 clients by Dirichlet(0.1), 10 a round, an MLP; 2 % of
the examples are the server's validation set, for all methods alike. Client rates are the same for all; server
rates are the recipes' own. Nothing is tuned per method.

    python -m experiments.compare --out docs/comparison.md
    python -m experiments.compare --preset geo/emoji-resnet20 --names fedavg craft --out docs/resnet20.md
"""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tyro

from experiments import datasets, presets, settings
from experiments.beside import accuracy, remarks
from experiments.preset import Preset
from experiments.report import machine
from fedjax_geo import methods, simulate
from fedjax_geo.simulate import Result
from fedjax_geo.types import FederatedData

COLUMNS = ("client_mean", "std", "noise_floor", "worst10", "best10")


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the comparison. What is None is as in the preset.

    Attributes:
        preset: experiments, one table each; ``python -m experiments.run --presets`` lists them.
        names: methods to run, default all.
        seeds: runs of each method; a seed chooses the partition, the model, cohorts and shuffles.
        out: Markdown file for the tables.
        append: write below what is in that file already.
        data: name of a data set.
        data_dir: folder of the data set's files, if not in one of the usual places.
        clients: number of clients.
        alpha: concentration of the Dirichlet partition.
        cohort: clients per round.
        rounds: server updates.
        validation: share of the examples that the server keeps; what FedVG costs grows with it.
        model: name of an architecture.
        lr: learning rate of the clients.
    """

    preset: tuple[str, ...] = ("geo/fashion-mnist-mlp",)
    names: tuple[str, ...] = tuple(methods.METHODS)
    seeds: tuple[int, ...] = (0, 1, 2)
    out: Path | None = None
    append: bool = False
    data: str | None = None
    data_dir: Path | None = None
    clients: int | None = None
    alpha: float | None = None
    cohort: int | None = None
    rounds: int | None = None
    validation: float | None = None
    model: str | None = None
    lr: float | None = None


def last(results: list[Result], model: str, key: str) -> str:
    """Mean and sample standard deviation over seeds, in per cent."""
    values = 100 * np.array([r.evaluations[-1].summaries[model][key] for r in results])
    spread = values.std(ddof=1) if len(values) > 1 else 0.0
    return f"{values.mean():.1f} ± {spread:.1f}"


def rows(name: str, results: list[Result], metric: str, published: str | None) -> list[str]:
    """Markdown rows of one method: the global model, and the personal ones where it has some."""
    conflict = 100 * np.mean([[m["conflict_share"] for m in r.metrics] for r in results])
    lines = []
    for model in results[0].evaluations[-1].summaries:
        label = name if model == "global" else f"{name}, personal"
        cells = [last(results, model, key) for key in (metric, *COLUMNS[1:])] + [f"{conflict:.1f}"]
        lines.append(f"| {label} | " + " | ".join(cells + ([] if published is None else [published])) + " |")
    return lines


def heading(preset: Preset, config: settings.Config, seeds: tuple[int, ...], federation: FederatedData) -> str:
    """What is run on what, and the head of the table."""
    passes = f"{config.steps} local steps" if config.steps else f"local epochs: {config.epochs}"
    rates = ", ".join(f"{name} {value}" for name, value in preset.common.items())
    kind = "over clients" if preset.metric == "client_mean" else "over all test examples"
    lines = [
        f"## {preset.name}\n",
        f"Data: {federation.provenance} (seeds {', '.join(map(str, seeds))}).",
        f"Model: {config.model}. {config.rounds} rounds, {config.cohort} of {federation.num_clients} clients a"
        f" round, {passes}, batch {config.batch_size}, {rates}.",
        *(f"{line[0].upper()}{line[1:].rstrip('.')}." for line in remarks(preset, config, {})),
        f"Made by `{' '.join(['python -m experiments.compare', *sys.argv[1:]])}` on {machine()}.",
        f"Accuracies in per cent after the last round, mean {kind}, ± sample standard deviation over seeds; the"
        " noise floor is the std over clients that an equally good model would show.\n",
        "| method | mean | std over clients | noise floor | worst 10 % | best 10 % | conflict, % |"
        + (" published mean |" if preset.published else ""),
        "|---|---:|---:|---:|---:|---:|---:|" + ("---:|" if preset.published else ""),
    ]
    return "\n".join(lines)


def final(preset: Preset, method: str, config: settings.Config) -> str | None:
    """What was published of a method at the end; None where the paper has no table of this kind."""
    if not preset.published:
        return None
    numbers = preset.numbers(method, config)
    end = max((p.round or 0 for p in numbers), default=0)
    return " / ".join(accuracy(p, 100, 1) for p in numbers if (p.round or 0) == end) or "-"


def compare(preset: Preset, config: Config, tell: Callable[[str], None]) -> None:
    """One table, row by row, so that a long run loses nothing."""
    shared = {f.name for f in dataclasses.fields(settings.Config)} - {"preset", "out"}
    given = {k: v for k, v in vars(config).items() if k in shared and v is not None}
    setting = dataclasses.replace(preset.config, **given)
    if config.lr is not None:
        preset = dataclasses.replace(preset, common={**preset.common, "lr": config.lr})
    built = {name: methods.find(name)(**preset.hyperparameters(name)) for name in config.names}
    federations = {seed: datasets.load(dataclasses.replace(setting, seed=seed)) for seed in config.seeds}
    first = next(iter(federations.values()))
    blind = [name for name, m in built.items() if m.weighting.needs_server_data and first.validation is None]
    tell(heading(preset, setting, config.seeds, first))
    for name, method in built.items():
        if name in blind:
            continue
        results = [
            simulate(
                method,
                settings.build_model(setting, federation.num_classes),
                federation,
                rounds=setting.rounds,
                cohort=setting.cohort,
                seed=seed,
                work=setting.work,
                eval_every=setting.rounds,
                strategy=settings.layout(setting),
            )
            for seed, federation in federations.items()
        ]
        tell("\n".join(rows(name, results, preset.metric, final(preset, name, setting))))
    if blind:
        tell(f"\nLeft out, for want of a validation set: {', '.join(blind)}.")


def main(config: Config) -> None:
    """Run everything; print and write the tables."""
    chosen = [presets.find(name) for name in config.preset]

    def tell(text: str, mode: str = "a") -> None:
        print(text, flush=True)
        if config.out is not None:
            with config.out.open(mode) as file:
                file.write(text + "\n")

    if not config.append:
        tell("# Methods compared\n", "w")
    for number, preset in enumerate(chosen):
        if number or config.append:
            tell("")
        compare(preset, config, tell)


if __name__ == "__main__":
    try:
        main(tyro.cli(Config))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
