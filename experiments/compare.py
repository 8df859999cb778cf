"""Every method on one federation, several seeds: the comparison table.

Fashion-MNIST, 100 clients by Dirichlet(0.1), 10 a round, an MLP; a tenth of the examples is the server's
validation set, for all methods alike. Client rates are the same for all; server rates are the recipes' own, but
for CRAFT, whose direction has a length of its own, see ``SERVER_RATES``. Nothing is tuned per method.

    python -m experiments.compare --out docs/comparison.md
"""

import dataclasses
import functools
import sys
from pathlib import Path

import numpy as np
import tyro

from experiments.report import machine
from fedjax_geo import Work, data, methods, models, simulate
from fedjax_geo.record import ProgressBar
from fedjax_geo.simulate import Result

SERVER_RATES = {"craft": 1.0, "craft_fedvg": 1.0, "craft_ditto": 1.0}
COLUMNS = ("client_mean", "std", "worst10", "best10")


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the comparison.

    Attributes:
        names: methods to run, default all.
        data: name of a data set.
        clients: number of clients.
        alpha: concentration of the Dirichlet partition.
        cohort: clients per round.
        rounds: server updates.
        lr: learning rate of the clients, times 0.999 each round.
        seeds: runs of each method; a seed chooses the partition, the model, cohorts and shuffles.
        out: Markdown file for the table.
    """

    names: tuple[str, ...] = tuple(methods.METHODS)
    data: str = "fashion_mnist"
    clients: int = 100
    alpha: float = 0.1
    cohort: int = 10
    rounds: int = 100
    lr: float = 0.05
    seeds: tuple[int, ...] = (0, 1, 2)
    out: Path | None = None


def last(results: list[Result], model: str, key: str) -> str:
    """Mean and sample standard deviation over seeds, in per cent."""
    values = 100 * np.array([r.evaluations[-1].summaries[model][key] for r in results])
    spread = values.std(ddof=1) if len(values) > 1 else 0.0
    return f"{values.mean():.1f} ± {spread:.1f}"


def rows(name: str, results: list[Result]) -> list[str]:
    """Markdown rows of one method: the global model, and the personal ones where it has some."""
    conflict = 100 * np.mean([[m["conflict_share"] for m in r.metrics] for r in results])
    lines = []
    for model in results[0].evaluations[-1].summaries:
        label = name if model == "global" else f"{name}, personal"
        cells = [last(results, model, key) for key in COLUMNS]
        lines.append(f"| {label} | " + " | ".join(cells) + f" | {conflict:.1f} |")
    return lines


def main(config: Config) -> None:
    """Run everything, print the table, write it if asked."""
    partition = functools.partial(data.dirichlet, alpha=config.alpha, min_examples=10)
    federations = {
        seed: data.load_federated(
            config.data,
            num_clients=config.clients,
            partition=partition,
            validation=data.server_holdout(0.1),
            seed=seed,
        )
        for seed in config.seeds
    }
    model = models.mlp(federations[config.seeds[0]].num_classes)
    table: dict[str, list[str]] = {}
    with ProgressBar() as bar:
        for name in config.names:
            rate = {"server_lr": SERVER_RATES[name]} if name in SERVER_RATES else {}
            method = methods.find(name)(lr=config.lr, decay=0.999, **rate)
            results = [
                simulate(
                    method,
                    model,
                    federation,
                    rounds=config.rounds,
                    cohort=config.cohort,
                    seed=seed,
                    work=Work(batch_size=20, epochs=1),
                    eval_every=config.rounds,
                    callbacks=[bar.run(f"{name} {seed}", config.rounds)],
                )
                for seed, federation in federations.items()
            ]
            table[name] = rows(name, results)
    first = federations[config.seeds[0]]
    noise = results[0].evaluations[-1].summaries["global"]["noise_floor"]
    setting = f"{config.rounds} rounds, {config.cohort} of {config.clients} clients a round"
    text = "\n".join(
        [
            f"Data: {first.provenance} (seeds {', '.join(map(str, config.seeds))}).",
            f"Model: MLP 784-200-200-10. {setting}, one local epoch, batch 20, client rate {config.lr} x 0.999^t.",
            f"Made by `python -m experiments.compare {' '.join(sys.argv[1:])}` on {machine()}.",
            "Accuracies in per cent on the test examples of all clients after the last round, mean ± sample"
            f" standard deviation over seeds; an equally good model would show a std of about {100 * noise:.1f}.",
            "",
            "| method | mean | std over clients | worst 10 % | best 10 % | conflict, % |",
            "|---|---:|---:|---:|---:|---:|",
            *(line for lines in table.values() for line in lines),
        ]
    )
    print(text)
    if config.out is not None:
        config.out.write_text(f"# Every method on one federation\n\n{text}\n")


if __name__ == "__main__":
    try:
        main(tyro.cli(Config))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
