"""Every method on one federation, several seeds: the comparison table.

Fashion-MNIST, 100 clients by Dirichlet(0.1), 10 a round, an MLP; 2 % of the examples are the server's
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
from fedjax_geo.simulate import Result
from fedjax_geo.types import FederatedData

SERVER_RATES = {"craft": 1.0, "craft_fedvg": 1.0, "craft_ditto": 1.0}
COLUMNS = ("client_mean", "std", "noise_floor", "worst10", "best10")


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
        validation: share of the examples that the server keeps; what FedVG costs grows with it.
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
    validation: float = 0.02
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


def heading(config: Config, first: FederatedData) -> str:
    """What was run on what, and the head of the table."""
    setting = f"{config.rounds} rounds, {config.cohort} of {config.clients} clients a round"
    command = " ".join(["python -m experiments.compare", *sys.argv[1:]])
    return (
        "# Every method on one federation\n\n"
        f"Data: {first.provenance} (seeds {', '.join(map(str, config.seeds))}).\n"
        f"Model: MLP with two hidden layers of 200. {setting}, one local epoch, batch 20, client rate"
        f" {config.lr} x 0.999^t.\nMade by `{command}` on {machine()}.\n"
        "Accuracies in per cent on the test examples of all clients after the last round, mean ± sample standard"
        " deviation over seeds; the noise floor is the std over clients that an equally good model would show.\n\n"
        "| method | mean | std over clients | noise floor | worst 10 % | best 10 % | conflict, % |\n"
        "|---|---:|---:|---:|---:|---:|---:|"
    )


def main(config: Config) -> None:
    """Run everything; print and write the table row by row, so that a long run loses nothing."""
    partition = functools.partial(data.dirichlet, alpha=config.alpha, min_examples=10)
    federations = {
        seed: data.load_federated(
            config.data,
            num_clients=config.clients,
            partition=partition,
            validation=data.server_holdout(config.validation),
            seed=seed,
        )
        for seed in config.seeds
    }
    first = next(iter(federations.values()))

    def tell(text: str, mode: str = "a") -> None:
        print(text, flush=True)
        if config.out is not None:
            with config.out.open(mode) as file:
                file.write(text + "\n")

    tell(heading(config, first), "w")
    for name in config.names:
        rate = {"server_lr": SERVER_RATES[name]} if name in SERVER_RATES else {}
        method = methods.find(name)(lr=config.lr, decay=0.999, **rate)
        results = [
            simulate(
                method,
                models.mlp(first.num_classes),
                federation,
                rounds=config.rounds,
                cohort=config.cohort,
                seed=seed,
                work=Work(batch_size=20, epochs=1),
                eval_every=config.rounds,
            )
            for seed, federation in federations.items()
        ]
        tell("\n".join(rows(name, results)))


if __name__ == "__main__":
    try:
        main(tyro.cli(Config))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
