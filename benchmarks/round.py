"""Seconds of one round, ours beside the floor and the rivals, in one run on the same clients and model.

    python -m benchmarks.round
    python -m benchmarks.round --workloads cnn --repeats 5 --no-rivals

Fashion-MNIST, the CRAFT authors' unbalanced Dirichlet(0.1) with 1000 clients, one local epoch, batches of 20. Each
row runs in a process of its own, one after another, so that memory is its own and nothing else is timed with it;
memory is left out where a row has several processes. PyTorch's rows need the extra ``benchmarks``. Those of other
simulators, pfl-research, BlazeFL and Flower, appear where they are installed (the extra ``peers``), and on a CPU
only. On an accelerator the devices are all there are, and PyTorch's rows need one that it knows as ``cuda``; they
were not run on one yet. Keep the machine quiet.
"""

import dataclasses
import importlib
import importlib.metadata
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import tyro

from benchmarks.workload import WORKLOADS
from experiments.settings import cores

# Name of each peer on PyPI -> what its rows import.
PEERS = {"pfl": ("pfl",), "blazefl": ("blazefl", "tqdm"), "flwr": ("flwr", "ray")}

# In the processes of rivals JAX only reads the data, and nothing is reported over the network.
RIVALS = {"JAX_PLATFORMS": "cpu", "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
ON_CPU = {"CUDA_VISIBLE_DEVICES": "", "PFL_PYTORCH_DEVICE": "cpu"}


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the benchmark.

    Attributes:
        workloads: 100 clients each; of residual networks, on 32 x 32 x 3, there is resnet110, too.
        rivals: also the rows of PyTorch and of other simulators, as far as they are installed.
        repeats: timed runs of each row after one that is not; the median counts.
        devices: virtual CPU devices that share the cohort, beside rows with one; default the cores.
        out: Markdown file for the tables.
        row: run one row of one workload in this process and print it as JSON; what the others are made of.
    """

    workloads: tuple[str, ...] = ("mlp", "cnn", "resnet20")
    rivals: bool = True
    repeats: int = 7
    devices: int = cores()
    out: Path | None = None
    row: str | None = None


def missing() -> list[str]:
    """The rivals that are not installed."""
    needs = {"torch": ("torch",)} | {peer: ("torch", *modules) for peer, modules in PEERS.items()}
    return [rival for rival, modules in needs.items() if not all(map(importlib.util.find_spec, modules))]


def rows(workload: str, devices: int, torch: str, peers: set[str]) -> dict[str, str]:
    """Label of each row -> its code ``function:argument:devices``.

    Args:
        workload: its name.
        devices: JAX's devices that share the cohort in some rows, and PyTorch's threads or processes on a CPU.
        torch: where PyTorch's rows run, ``cpu`` or ``cuda``; empty for none of them.
        peers: the other simulators that get rows.
    """
    n = devices
    several = f", {n} devices" if n > 1 else ""
    table = {
        "centralised jitted loop (the floor)": "centralised::1",
        "ours, FedAvg": "federated:fedavg:1",
        f"ours, FedAvg{several}": f"federated:fedavg:{n}",
        f"ours, FedAvg{several}, short last batches": f"halved:fedavg:{n}",
        "ours, CRAFT": "federated:craft:1",
        f"ours, CRAFT{several}": f"federated:craft:{n}",
        "ours, CRAFT's step alone": "server_step:craft:1",
        "ours, FedAvg's step alone": "server_step:fedavg:1",
        f"ours, FedVG's scores on 1000 images{several}": f"fedvg_score::{n}",
    }
    if torch == "cpu":
        table |= {
            "PyTorch, one thread": "torch_one:cpu:1",
            f"PyTorch, {n} threads": f"torch_one:cpu:{n}",
            f"PyTorch, {n} processes": f"torch_processes:cpu:{n}",
            "PyTorch, CRAFT's step by pinv": f"torch_craft:cpu:{n}",
        }
    elif torch == "cuda":
        table["PyTorch"] = "torch_plain:cuda:1"
        if workload != "mlp":
            table["PyTorch, channels last"] = "torch_one:cuda:1"
        table["PyTorch, vmap over clients"] = "torch_stacked:cuda:1"
        table["PyTorch, CRAFT's step by pinv"] = "torch_craft:cuda:1"
    if "pfl" in peers:
        table |= {"pfl-research": "peer:pfl:1", f"pfl-research, {n} processes": f"peer:pfl:{n}"}
    if "blazefl" in peers:
        table |= {"BlazeFL": "peer:blazefl:1", f"BlazeFL, {n} threads": f"peer:blazefl:{n}"}
    if "flwr" in peers:
        table[f"Flower, {n} actors"] = f"peer:flwr:{n}"
    return table


def run_row(config: Config) -> dict[str, Any]:
    """One row, in this process."""
    assert config.row is not None
    kind, argument, devices = config.row.split(":")
    workload, n = WORKLOADS[config.workloads[0]], int(devices)
    if kind == "machine":
        return describe()
    result: dict[str, Any]
    if kind.startswith("torch"):
        from benchmarks import torch_loop

        if kind == "torch_one":
            result = torch_loop.one_process(workload.name, n, config.repeats, argument)
        elif kind == "torch_plain":
            result = torch_loop.one_process(workload.name, n, config.repeats, argument, channels_last=False)
        elif kind == "torch_stacked":
            result = torch_loop.side_by_side(workload.name, n, config.repeats, argument)
        elif kind == "torch_processes":
            result = torch_loop.processes(workload.name, n, config.repeats)
        else:
            result = torch_loop.craft_step(workload.name, n, config.repeats, argument)
    elif kind == "peer":
        result = importlib.import_module(f"benchmarks.peer_{argument}").rounds(workload.name, n, config.repeats)
    else:
        from benchmarks import jax_rounds

        strategy = jax_rounds.use_devices(n)
        if kind == "halved":
            strategy, kind = strategy._replace(halvings=2), "federated"
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


def describe() -> dict[str, Any]:
    """The machine: what it is, one large product's speed, and its accelerators as JAX and PyTorch see them."""
    import jax

    from benchmarks.measure import matmul_peak
    from experiments.report import machine

    accelerators = len(jax.devices()) if jax.default_backend() != "cpu" else 0
    cuda = False
    if accelerators and importlib.util.find_spec("torch"):
        import torch

        cuda = torch.cuda.is_available()
    return {"text": machine(), "peak": matmul_peak(), "accelerators": accelerators, "cuda": cuda}


def measured(config: Config, workload: str, row: str) -> dict[str, Any]:
    """One row, in a process of its own."""
    from benchmarks.measure import spawn

    options = ["--workloads", workload, "--row", row, "--repeats", str(config.repeats)]
    kind, argument, devices = row.split(":")
    launcher: list[str] = []
    environment = {}
    if kind == "peer":
        environment = RIVALS | ON_CPU
        if argument == "pfl" and devices != "1":  # its processes are those of torchrun
            launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={devices}"]
            launcher += ["--local-ranks-filter=0"]
    elif kind.startswith("torch"):
        environment = RIVALS
    return spawn("benchmarks.round", options, launcher, environment)


def table(config: Config, name: str, peak: float, codes: dict[str, str]) -> list[str]:
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
    for label, code in codes.items():
        result = measured(config, name, code)
        seen = int(result.get("examples", 0 if "step" in label else examples))
        rate = seen / result["seconds"]
        share = f"{6 * workload.madds * rate / peak:.0%}" if seen else ""
        compiled = f"{result['compile']:.1f} s" if "compile" in result else ""
        memory = "" if result["memory"] is None else f"{result['memory']:.2f}"
        cells = [f"{result['seconds']:.4f}", f"{rate:.0f}" if seen else "", share, compiled, memory]
        line = f"| {label} | " + " | ".join(cells) + " |"
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
    machine = measured(config, config.workloads[0], "machine::1")  # this process leaves an accelerator alone
    devices, torch, peers = config.devices, "", set()
    found = [rival for rival in ("torch", *PEERS) if rival not in missing()]
    if machine["accelerators"]:
        devices = machine["accelerators"]
        torch = "cuda" if config.rivals and machine["cuda"] else ""
    elif config.rivals and "torch" in found:
        torch, peers = "cpu", set(found) & set(PEERS)
    versions = "".join(f", {rival} {importlib.metadata.version(rival)}" for rival in found if config.rivals)
    command = " ".join(["python -m benchmarks.round", *sys.argv[1:]])
    lines = [
        f"`{command}` on {machine['text']}{versions}; one 2048 x 2048 matrix product runs at "
        f"{machine['peak'] / 1e9:.0f} GFLOP/s."
    ]
    if config.rivals and missing():
        lines.append(f"\nNot installed: {', '.join(missing())}.")
    print("\n".join(lines), flush=True)
    for name in config.workloads:
        lines += table(config, name, machine["peak"], rows(name, devices, torch, peers))
    if config.out is not None:
        config.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    try:
        main(tyro.cli(Config))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
