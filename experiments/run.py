"""Any method on any data set.

python -m experiments.run --method craft --server-lr 1.0
python -m experiments.run --method fedavg --data fashion_mnist --clients 1000 --cohort 100 --model cnn
"""

import dataclasses
import functools
import inspect
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import tyro

from experiments.report import print_table
from fedjax_geo import Strategy, Work, data, methods, models, parallel, simulate
from fedjax_geo.record import ProgressBar, run_folder
from fedjax_geo.types import FederatedData, Method, Model

PARTITIONS: dict[str, Callable[["Config"], data.Partition | None]] = {
    "natural": lambda c: None,
    "iid": lambda c: data.iid,
    "dirichlet": lambda c: functools.partial(data.dirichlet, alpha=c.alpha),
    "craft": lambda c: functools.partial(data.craft_dirichlet, alpha=c.alpha),
    "craft-balanced": lambda c: functools.partial(data.craft_dirichlet, alpha=c.alpha, balanced=True),
    "fedvg": lambda c: functools.partial(data.fedvg_dirichlet, alpha=c.alpha),
    "shards": lambda c: data.shards,
}
MODELS: dict[str, Callable[[int], Model]] = {"mlp": models.mlp, "cnn": models.cnn}


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of a run. Hyperparameters of the method are options of their own, see below.

    Attributes:
        method: name of a recipe.
        data: name of a data set, looked for on this machine; nothing is downloaded.
        data_dir: folder of the data set's files, if not in one of the usual places.
        partition: how examples become clients. natural: the data set's own clients; dirichlet: label skew, always
            feasible; craft, craft-balanced, fedvg: the authors' schemes; shards: few labels per client.
        alpha: concentration of the Dirichlet partitions.
        clients: number of clients, unless natural.
        validation: share of the examples that the server keeps as its validation set; 0 for none.
        pooled: take the validation set from every client's examples instead of before partitioning.
        model: architecture.
        rounds: server updates.
        cohort: clients per round.
        batch_size: examples per local step.
        epochs: local passes over a client's examples per round.
        steps: local steps per round, instead of epochs.
        eval_every: rounds between evaluations on all clients.
        seed: of everything random.
        chunk: clients trained side by side; default chosen for the backend, 0 for the whole cohort.
        devices: devices that share the cohort; on a CPU, that many virtual ones.
        out: folder for the run's records.
    """

    method: str = "craft"
    data: str = "digits_forms"
    data_dir: Path | None = None
    partition: Literal["natural", "iid", "dirichlet", "craft", "craft-balanced", "fedvg", "shards"] | None = None
    alpha: float = 0.1
    clients: int = 100
    validation: float = 0.1
    pooled: bool = False
    model: Literal["mlp", "cnn"] = "mlp"
    rounds: int = 50
    cohort: int = 10
    batch_size: int = 20
    epochs: int = 1
    steps: int | None = None
    eval_every: int = 10
    seed: int = 0
    chunk: int | None = None
    devices: int = 1
    out: Path = Path("runs")


def load(config: Config) -> FederatedData:
    """The federation that a configuration asks for."""
    source = data.load(config.data, data_dir=config.data_dir)
    name = config.partition or ("dirichlet" if source.client_ids is None else "natural")
    partition = PARTITIONS[name](config)
    if config.validation == 0:
        validation = None
    else:
        validation = (data.pooled_clients if config.pooled else data.server_holdout)(config.validation)
    return data.federate(
        source,
        partition,
        num_clients=None if partition is None else config.clients,
        validation=validation,
        seed=config.seed,
    )


def layout(config: Config) -> Strategy:
    """The layout that a configuration asks for."""
    default = parallel.default_strategy()
    chunk = default.chunk if config.chunk is None else (config.chunk or None)
    return Strategy(chunk, parallel.clients_mesh(config.devices) if config.devices > 1 else None)


def peak_memory() -> str:
    """Peak memory of this process, and of the accelerator where there is one."""
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    stats = jax.devices()[0].memory_stats() or {}
    device = stats.get("peak_bytes_in_use")
    return f"{host:.2f} GiB host" + (f", {device / 2**30:.2f} GiB device" if device else "")


def describe_methods() -> str:
    """One line for each recipe, with its hyperparameters and their defaults."""
    lines = []
    for name, recipe in methods.METHODS.items():
        options = [f"{p.name}={p.default}" for p in inspect.signature(recipe).parameters.values()]
        first = (recipe.__doc__ or "").splitlines()[0]
        lines.append(f"  {name:<15} {first}\n{'':<18}{', '.join(options)}")
    return "methods and their hyperparameters (give them as --server-lr 0.5 and so on):\n" + "\n".join(lines)


def parse(arguments: Sequence[str]) -> tuple[Config, Method, dict[str, Any]]:
    """Configuration, method, and the method's hyperparameters, from a command line."""
    if {"--help", "-h"} & set(arguments):
        print(describe_methods() + "\n")
    config, rest = tyro.cli(Config, args=arguments, return_unknown_args=True, prog="experiments.run")
    if config.devices > 1:  # before anything is computed
        jax.config.update("jax_num_cpu_devices", config.devices)
    recipe = methods.find(config.method)
    known = inspect.signature(recipe).parameters
    allowed = {prefix + name.replace("_", "-") for name in known for prefix in ("--", "--no-")}
    for option in (a.split("=")[0] for a in rest if a.startswith("--")):
        if option.replace("_", "-") not in allowed:
            raise ValueError(f"unknown option {option}; method '{config.method}' takes {', '.join(known)}")
    chosen: dict[str, Any] = {}

    @functools.wraps(recipe)
    def build(**hyperparameters: Any) -> Method:
        chosen.update(hyperparameters)
        return recipe(**hyperparameters)

    return config, tyro.cli(build, args=rest, prog=f"experiments.run --method {config.method}"), chosen


def main(arguments: Sequence[str]) -> None:
    """Run one configuration and print what came out."""
    config, method, hyperparameters = parse(arguments)
    federation = load(config)
    print(f"{federation.provenance}\n{data.summarize(federation)}\n")
    strategy = layout(config)
    folder = config.out / time.strftime(f"{config.data}-{config.method}-%Y%m%d-%H%M%S")
    settings = dataclasses.asdict(config) | {
        "hyperparameters": hyperparameters,
        "provenance": federation.provenance,
        "jax": jax.__version__,
        "device": str(jax.devices()[0]),
    }
    settings = {k: str(v) if isinstance(v, Path) else v for k, v in settings.items()}
    with ProgressBar() as bar:
        result = simulate(
            method,
            MODELS[config.model](federation.num_classes),
            federation,
            rounds=config.rounds,
            cohort=config.cohort,
            seed=config.seed,
            work=Work(config.batch_size, None if config.steps else config.epochs, config.steps),
            eval_every=config.eval_every,
            strategy=strategy,
            callbacks=[bar.run(config.method, config.rounds), run_folder(folder, settings)],
        )
    print_table({config.method: result}, f"{config.data}, {federation.num_clients} clients, {config.model}")
    print(
        f"compiled in {result.compile_seconds:.1f} s, {result.round_seconds:.3f} s per round, "
        f"peak memory {peak_memory()}; {strategy.num_devices} x {jax.devices()[0].device_kind}, "
        f"chunk {strategy.chunk or 'whole cohort'}\nrecords in {folder}/"
    )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
