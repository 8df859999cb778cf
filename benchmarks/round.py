"""Seconds of one round, ours beside the floor and the rivals, in one run on the same clients and model.

    python -m benchmarks.round
    python -m benchmarks.round --workloads cnn --repeats 5 --rivals

Fashion-MNIST, the CRAFT authors' unbalanced Dirichlet(0.1) with 1000 clients, one local epoch, batches of 20. Each
row runs in a process of its own, one after another, so that memory is its own and nothing else is timed with it.
PyTorch's rows need the extra ``benchmarks``. On an accelerator the devices are all there are, and PyTorch's rows,
which are written for a CPU, are left out. Keep the machine quiet.
"""

import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import tyro

from benchmarks.workload import WORKLOADS
from experiments.settings import cores


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the benchmark.

    Attributes:
        workloads: mlp and cnn train 100 clients, resnet20 ten (as 32 x 32 x 3).
        rivals: also PyTorch's rows, if it is installed.
        repeats: timed runs of each row after one that is not; the median counts.
        devices: virtual CPU devices that share the cohort, beside rows with one; default the cores.
        out: Markdown file for the tables.
        row: run one row of one workload in this process and print it as JSON; what the others are made of.
    """

    workloads: tuple[str, ...] = tuple(WORKLOADS)
    rivals: bool = True
    repeats: int = 7
    devices: int = cores()
    out: Path | None = None
    row: str | None = None


def rows(config: Config) -> dict[str, str]:
    """Label of each row -> its code ``function:argument:devices``."""
    n = config.devices
    several = f", {n} devices" if n > 1 else ""
    table = {
        "centralised jitted loop (the floor)": "centralised::1",
        "ours, FedAvg": "federated:fedavg:1",
        f"ours, FedAvg{several}": f"federated:fedavg:{n}",
        "ours, CRAFT": "federated:craft:1",
        f"ours, CRAFT{several}": f"federated:craft:{n}",
        "ours, CRAFT's step alone": "server_step:craft:1",
        "ours, FedAvg's step alone": "server_step:fedavg:1",
        f"ours, FedVG's scores on 1000 images{several}": f"fedvg_score::{n}",
    }
    if config.rivals and importlib.util.find_spec("torch"):
        table |= {
            "PyTorch, one thread": "torch_one::1",
            f"PyTorch, {n} threads": f"torch_one::{n}",
            f"PyTorch, {n} processes": f"torch_processes::{n}",
            "PyTorch, CRAFT's step by pinv": f"torch_craft::{n}",
        }
    return table


def run_row(config: Config) -> dict[str, float]:
    """One row, in this process."""
    assert config.row is not None
    kind, argument, devices = config.row.split(":")
    workload, n = WORKLOADS[config.workloads[0]], int(devices)
    if kind.startswith("torch"):
        from benchmarks import torch_loop

        if kind == "torch_one":
            result = {"seconds": torch_loop.one_process(workload.name, n, config.repeats)}
        elif kind == "torch_processes":
            result = {"seconds": torch_loop.processes(workload.name, n, config.repeats)}
        else:
            result = {"seconds": torch_loop.craft_step(workload.name, config.repeats, n)}
    else:
        from benchmarks import jax_rounds

        strategy = jax_rounds.use_devices(n)
        if kind == "federated":
            result = jax_rounds.federated(workload, argument, strategy, config.repeats)
        elif kind == "server_step":
            result = jax_rounds.server_step(workload, argument, config.repeats)
        elif kind == "fedvg_score":
            result = jax_rounds.fedvg_score(workload, strategy, min(config.repeats, 3))
        else:
            result = jax_rounds.centralised(workload, config.repeats)
    from benchmarks.measure import peak_memory

    return {"memory": peak_memory(), **result}


def spawn(config: Config, workload: str, row: str) -> dict[str, float]:
    """One row, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.round", "--workloads", workload, "--row", row]
    command += ["--repeats", str(config.repeats)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"row {row} of {workload} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def table(config: Config, name: str, peak: float) -> list[str]:
    """The rows of one workload as Markdown."""
    from benchmarks.workload import one_round

    workload = WORKLOADS[name]
    examples = int(one_round(workload).train.sizes.sum())
    lines = [
        f"\n### {name}: {workload.clients} clients, {examples} examples a round\n",
        "| | s / round | examples / s | share of matmul peak | compiled in | memory, GiB |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    print("\n".join(lines), flush=True)
    for label, code in rows(config).items():
        result = spawn(config, name, code)
        seen = int(result.get("examples", 0 if "step" in label else examples))
        rate = seen / result["seconds"]
        share = f"{6 * workload.madds * rate / peak:.0%}" if seen else ""
        compiled = f"{result['compile']:.1f} s" if "compile" in result else ""
        cells = [f"{result['seconds']:.4f}", f"{rate:.0f}" if seen else "", share, compiled]
        line = f"| {label} | " + " | ".join(cells) + f" | {result['memory']:.2f} |"
        print(line, flush=True)
        lines.append(line)
    return lines


def main(config: Config) -> None:
    """Run the rows and print the tables."""
    unknown = set(config.workloads) - set(WORKLOADS)
    if unknown:
        raise ValueError(f"workloads must be among {', '.join(WORKLOADS)}, got {', '.join(sorted(unknown))}")
    if config.row is not None:
        print(json.dumps(run_row(config)))
        return
    import jax

    from benchmarks.measure import machine, matmul_peak

    if jax.default_backend() != "cpu":  # PyTorch's loop here is for the CPU
        config = dataclasses.replace(config, devices=len(jax.devices()), rivals=False)
    peak = matmul_peak()
    command = " ".join(["python -m benchmarks.round", *sys.argv[1:]])
    lines: list[Any] = [
        f"`{command}` on {machine()}; one 2048 x 2048 matrix product runs at {peak / 1e9:.0f} GFLOP/s."
    ]
    print(lines[0], flush=True)
    for name in config.workloads:
        lines += table(config, name, peak)
    if config.out is not None:
        config.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    try:
        main(tyro.cli(Config))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
