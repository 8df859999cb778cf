"""FedAvg, FedVG, CRAFT and CRAFT with FedVG weights on 14 real clients, in under a minute.

The clients are the 14 handwriting forms of the embedded 8x8 digits; half of them take part in each round.

    python -m experiments.quickstart
"""

import time
from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments.report import print_table, save_figure
from fedjax_geo import Work, methods, simulate
from fedjax_geo.data import load_federated, server_holdout, summarize
from fedjax_geo.models import mlp
from fedjax_geo.record import ProgressBar, run_folder


@dataclass(frozen=True)
class Config:
    """Settings of the quickstart.

    Attributes:
        rounds: server updates of each method.
        cohort: clients per round, of 14.
        lr: learning rate of the clients, for all methods.
        craft_server_lr: learning rate of the server for CRAFT, whose directions have a length of order one.
        seed: of everything random.
        out: folder for the run records and the figure.
    """

    rounds: int = 100
    cohort: int = 7
    lr: float = 0.3
    craft_server_lr: float = 0.3
    seed: int = 0
    out: Path = Path("runs")


def main(config: Config) -> None:
    """Train the four methods, print a table, save a figure."""
    data = load_federated("digits_forms", validation=server_holdout(0.1), seed=config.seed)
    print(f"{data.provenance}\n{summarize(data)}\n")
    compared = {
        "FedAvg": methods.fedavg(lr=config.lr),
        "FedVG": methods.fedvg(lr=config.lr),
        "CRAFT": methods.craft(lr=config.lr, server_lr=config.craft_server_lr),
        "CRAFT + FedVG": methods.craft_fedvg(lr=config.lr, server_lr=config.craft_server_lr),
    }
    folder = config.out / time.strftime("quickstart-%Y%m%d-%H%M%S")
    results = {}
    with ProgressBar() as bar:
        for name, method in compared.items():
            settings = {"method": name, **vars(config), "out": str(folder), "data": data.provenance}
            results[name] = simulate(
                method,
                mlp(data.num_classes),
                data,
                rounds=config.rounds,
                cohort=config.cohort,
                seed=config.seed,
                work=Work(batch_size=20, epochs=1),
                callbacks=[
                    bar.run(name, config.rounds),
                    run_folder(folder / name.lower().replace(" + ", "-"), settings),
                ],
            )
    title = f"digits by handwriting form, {data.num_clients} clients, {config.cohort} a round, MLP"
    print_table(results, f"{title}, after {config.rounds} rounds (test examples of all clients)")
    figure = save_figure(results, title, folder / "quickstart.png")
    print(f"records in {folder}/, figure in {figure}")


if __name__ == "__main__":
    main(tyro.cli(Config))
