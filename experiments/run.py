"""Any method on any data set, or an experiment of a paper.

python -m experiments.run --method craft --server-lr 1.0
python -m experiments.run --method fedavg --data fashion_mnist --clients 1000 --cohort 100 --model cnn
python -m experiments.run --presets
python -m experiments.run --preset craft/cifar10-resnet20 --method fedavg --rounds 100
"""

import argparse
import dataclasses
import functools
import inspect
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import tyro

from experiments import presets
from experiments.beside import print_beside
from experiments.datasets import load
from experiments.preset import Preset
from experiments.report import print_table
from experiments.settings import Config, build_model, layout, prepare_devices
from fedjax_geo import data, layers, measured_strategy, methods, simulate
from fedjax_geo.record import ProgressBar, run_folder
from fedjax_geo.tune import describe
from fedjax_geo.types import Method


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


def chosen_preset(arguments: Sequence[str]) -> Preset | None:
    """The preset that a command line names."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--preset")
    name = parser.parse_known_args(list(arguments))[0].preset
    return None if name is None else presets.find(name)


def parse(arguments: Sequence[str]) -> tuple[Config, Method, dict[str, Any]]:
    """Configuration, method, and the method's hyperparameters, from a command line."""
    if {"--help", "-h"} & set(arguments):
        print(f"{describe_methods()}\n\npresets: see --presets\n")
    preset = chosen_preset(arguments)
    defaults = Config() if preset is None else preset.config
    config, rest = tyro.cli(
        Config, default=defaults, args=arguments, return_unknown_args=True, prog="experiments.run"
    )
    prepare_devices(config)
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

    given = {} if preset is None else preset.hyperparameters(config.method)
    method = tyro.cli(
        functools.partial(build, **given), args=rest, prog=f"experiments.run --method {config.method}"
    )
    return config, method, chosen


def main(arguments: Sequence[str]) -> None:
    """Run one configuration and print what came out."""
    if "--presets" in arguments:
        print(presets.describe(tyro.cli(Config, args=[a for a in arguments if a != "--presets"]).data_dir))
        return
    config, method, hyperparameters = parse(arguments)
    federation = load(config)
    print(f"{federation.provenance}\n{data.summarize(federation)}\n")
    model = build_model(config, federation.num_classes)
    diagnose = layers.module if config.diagnose else None
    if config.auto:
        choice = measured_strategy(
            method,
            model,
            federation,
            cohort=config.cohort,
            work=config.work,
            seed=config.seed,
            diagnose=diagnose,
        )
        strategy, chosen = choice.strategy, str(choice)
    else:
        strategy = layout(config)
        chosen = describe(strategy)
    print(f"layout: {chosen}\n", flush=True)
    folder = config.out / time.strftime(f"{config.data}-{config.method}-%Y%m%d-%H%M%S")
    settings = dataclasses.asdict(config) | {
        "hyperparameters": hyperparameters,
        "provenance": federation.provenance,
        "jax": jax.__version__,
        "device": str(jax.devices()[0]),
        "layout": describe(strategy),
    }
    settings = {k: str(v) if isinstance(v, Path) else v for k, v in settings.items()}
    with ProgressBar() as bar:
        result = simulate(
            method,
            model,
            federation,
            rounds=config.rounds,
            cohort=config.cohort,
            seed=config.seed,
            work=config.work,
            eval_every=config.eval_every,
            strategy=strategy,
            callbacks=[bar.run(config.method, config.rounds), run_folder(folder, settings)],
            diagnose=diagnose,
            stream=config.stream,
        )
    print_table({config.method: result}, f"{config.data}, {federation.num_clients} clients, {config.model}")
    if config.preset is not None:
        print_beside(presets.find(config.preset), config, hyperparameters, result)
    print(
        f"compiled in {result.compile_seconds:.1f} s, {result.round_seconds:.3f} s per round, "
        f"peak memory {peak_memory()}; {jax.devices()[0].device_kind}, {describe(strategy)}\n"
        f"records in {folder}/"
    )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (ValueError, OSError, MemoryError) as error:
        sys.exit(f"error: {error}")
