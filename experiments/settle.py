"""CRAFT that settles: why it collapses at a constant server rate, and what cures it.

1000 clients of Fashion-MNIST by the CRAFT authors' unbalanced Dirichlet(0.1), 100 a round, an MLP, client rate
0.05 x 0.999^t. CRAFT's direction has a length of order one however short the clients' updates are, so a constant
server rate of 1 goes on moving the model when there is nothing left to learn.

    python -m experiments.settle --out docs/settle
"""

import dataclasses
import functools
import sys
from pathlib import Path

import matplotlib
import numpy as np
import optax
import tyro

from experiments.report import machine
from fedjax_geo import Method, Work, data, methods, models, simulate
from fedjax_geo.aggregators import craft, no_reference
from fedjax_geo.record import ProgressBar
from fedjax_geo.simulate import Result
from fedjax_geo.transforms import match_lengths

matplotlib.use("Agg")
from matplotlib import pyplot as plt


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        rounds: server updates.
        clients: number of clients.
        cohort: clients per round.
        lr: learning rate of the clients, times 0.999 each round.
        seed: of model, cohorts and shuffles; the partition has the authors' seed 77.
        out: folder for the table and the figure.
    """

    rounds: int = 300
    clients: int = 1000
    cohort: int = 100
    lr: float = 0.05
    seed: int = 0
    out: Path = Path("runs/settle")


def compared(config: Config) -> dict[str, Method]:
    """FedAvg, CRAFT as published, CRAFT with each cure."""
    base = methods.craft(config.lr, server_lr=1.0, decay=0.999)

    def with_server(*links: optax.GradientTransformation) -> Method:
        return base._replace(server=optax.chain(*links))

    return {
        "FedAvg": methods.fedavg(config.lr, decay=0.999),
        "CRAFT, rate 1": base,
        "CRAFT, rate 0.1": methods.craft(config.lr, server_lr=0.1, decay=0.999),
        "CRAFT, no reference": with_server(craft(reference=no_reference), optax.sgd(1.0)),
        "CRAFT, cosine rate": with_server(craft(), optax.sgd(optax.cosine_decay_schedule(1.0, config.rounds))),
        "CRAFT, 1 / (1 + t / 30)": with_server(craft(), optax.sgd(lambda t: 1.0 / (1.0 + t / 30.0))),
        "CRAFT, matched lengths": with_server(match_lengths(craft()), optax.sgd(1.0)),
    }


def table(results: dict[str, Result]) -> str:
    """Accuracy at a few rounds and the end, in per cent, with the diagnostics that explain it."""
    last = max(r.evaluations[-1].round for r in results.values())
    shown = [r for r in (50, 100, 200) if r < last] + [last]
    heads = [f"round {r}" for r in shown]
    lines = [
        f"| method | {' | '.join(heads)} | std | worst 10 % | step length, first / last | cosine with last step |",
        "|---|" + "---:|" * (len(heads) + 4),
    ]
    for name, result in results.items():
        by_round = {e.round: 100 * e.summaries["global"]["client_mean"] for e in result.evaluations}
        means = [f"{by_round[r]:.1f}" if r in by_round else "stopped" for r in shown]
        final = result.evaluations[-1].summaries["global"]
        lengths = [m["step_norm"] for m in result.metrics]
        turning = np.mean([m["previous_cosine"] for m in result.metrics[-20:]])
        lines.append(
            f"| {name} | {' | '.join(means)} | {100 * final['std']:.1f} | {100 * final['worst10']:.1f} "
            f"| {lengths[0]:.2f} / {np.mean(lengths[-20:]):.2f} | {turning:.2f} |"
        )
    return "\n".join(lines)


def figure(results: dict[str, Result], path: Path) -> None:
    """Accuracy, step length and agreement with the step before, over rounds."""
    canvas, axes = plt.subplots(1, 3, figsize=(15, 4), layout="constrained")
    for result in results.values():
        rounds = [m["round"] for m in result.metrics]
        global_ = [e.summaries["global"] for e in result.evaluations]
        axes[0].plot([e.round for e in result.evaluations], [g["client_mean"] for g in global_])
        axes[1].plot(rounds, [m["step_norm"] for m in result.metrics])
        axes[2].plot(rounds, [m["previous_cosine"] for m in result.metrics], alpha=0.7)
    axes[0].set(xlabel="round", ylabel="mean accuracy over clients", ylim=(0, 1))
    axes[0].legend(list(results), fontsize=8)
    axes[1].set(xlabel="round", ylabel="length of the server's step", yscale="log")
    axes[2].set(xlabel="round", ylabel="cosine with the step before")
    canvas.savefig(path, dpi=110)
    plt.close(canvas)


def main(config: Config) -> None:
    """Run all, print and write the table, save the figure."""
    federation = data.load_federated(
        "fashion_mnist",
        num_clients=config.clients,
        partition=functools.partial(data.craft_dirichlet, alpha=0.1),
        seed=77,
    )
    results = {}
    with ProgressBar() as bar:
        for name, method in compared(config).items():
            results[name] = simulate(
                method,
                models.mlp(federation.num_classes),
                federation,
                rounds=config.rounds,
                cohort=config.cohort,
                seed=config.seed,
                work=Work(batch_size=20, epochs=1),
                eval_every=25,
                callbacks=[bar.run(name, config.rounds)],
            )
    command = " ".join(["python -m experiments.settle", *sys.argv[1:]])
    text = f"Data: {federation.provenance}.\nMade by `{command}` on {machine()}.\n\n{table(results)}"
    print(text)
    config.out.mkdir(parents=True, exist_ok=True)
    (config.out / "table.md").write_text(text + "\n")
    figure(results, config.out / "settle.png")


if __name__ == "__main__":
    try:
        main(tyro.cli(Config))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
