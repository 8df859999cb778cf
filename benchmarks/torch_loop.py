"""A round in PyTorch as its best: tensors in memory, one client after another, no data loader.

With one thread, with all threads, channels last for convolutions, and as processes of one thread that share the
clients. CRAFT's step as its authors' code takes it: one pseudo-inverse for each layer.
"""

import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
import torch.multiprocessing as mp
from torch.nn import functional as F

from benchmarks.torch_models import MODELS
from benchmarks.workload import BATCH_SIZE, LEARNING_RATE, WORKLOADS, one_round


class Clients:
    """The examples of some clients as tensors, and a model to train on them."""

    def __init__(self, name: str, rank: int = 0, share: int = 1) -> None:
        """Takes every ``share``-th client by size, from ``rank`` on, so that shares are alike."""
        data = one_round(WORKLOADS[name])
        sizes = np.asarray(data.train.sizes)
        self.data = []
        for i in np.argsort(-sizes)[rank::share]:
            index = np.asarray(data.train.indices)[i, : sizes[i]]
            x = torch.from_numpy(np.array(data.prepare(np.asarray(data.examples.x)[index])))
            x = x.permute(0, 3, 1, 2)
            x = x.contiguous(memory_format=torch.channels_last) if name != "mlp" else x.contiguous()
            self.data.append((x, torch.from_numpy(np.asarray(data.examples.y)[index]).long()))
        torch.manual_seed(0)
        self.model = MODELS[name]()
        if name != "mlp":
            self.model = self.model.to(memory_format=torch.channels_last)
        self.start = {k: v.clone() for k, v in self.model.state_dict().items()}

    def train(self) -> tuple[list[torch.Tensor], int]:
        """One local epoch of each client -> the sum of their models weighted by examples, and the examples."""
        total = [torch.zeros_like(p) for p in self.model.parameters()]
        examples = 0
        for update, size in self.updates():
            torch._foreach_add_(total, update, alpha=size)
            examples += size
        return total, examples

    def updates(self) -> Any:
        """Each client's update, one after another, with its number of examples."""
        start = list(self.start.values())
        for x, y in self.data:
            self.model.load_state_dict(self.start)
            optimizer = torch.optim.SGD(self.model.parameters(), LEARNING_RATE)
            order = torch.randperm(len(y))
            for rows in order.split(BATCH_SIZE):
                optimizer.zero_grad()
                F.cross_entropy(self.model(x[rows]), y[rows]).backward()
                optimizer.step()
            with torch.no_grad():
                yield torch._foreach_sub(start, list(self.model.parameters())), len(y)


def median(run: Any, repeats: int) -> float:
    """Median wall time, after one run that does not count."""
    times = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return float(np.median(times[1:]))


def one_process(name: str, threads: int, repeats: int) -> float:
    """Seconds of one round's training."""
    torch.set_num_threads(threads)
    return median(Clients(name).train, repeats)


def _work(name: str, rank: int, share: int, pipe: Connection) -> None:
    torch.set_num_threads(1)
    clients = Clients(name, rank, share)
    while pipe.recv():
        pipe.send([t.numpy() for t in clients.train()[0]])


def processes(name: str, number: int, repeats: int) -> float:
    """Seconds of one round's training, shared by processes of one thread each; the parent adds their sums."""
    context = mp.get_context("spawn")
    pipes: list[Connection] = []
    workers: list[Any] = []
    for rank in range(number):
        here, there = context.Pipe()
        worker = context.Process(target=_work, args=(name, rank, number, there), daemon=True)
        worker.start()
        pipes.append(here)
        workers.append(worker)

    def train() -> list[Sequence[np.ndarray]]:
        for pipe in pipes:
            pipe.send(True)
        return [sum(parts) for parts in zip(*(pipe.recv() for pipe in pipes), strict=True)]

    result = median(train, repeats)
    for pipe in pipes:
        pipe.send(False)
    for worker in workers:
        worker.join()
    return result


def craft_step(name: str, repeats: int, threads: int) -> float:
    """Seconds of CRAFT's step with ``torch.linalg.pinv`` of each layer's stacked updates (weight and bias)."""
    torch.set_num_threads(threads)
    clients = Clients(name)
    stacked = [torch.stack(leaf).flatten(1) for leaf in zip(*(u for u, _ in clients.updates()), strict=True)]
    names = [n.rsplit(".", 1)[0] for n, _ in clients.model.named_parameters()]
    groups = [
        torch.cat([u for u, n in zip(stacked, names, strict=True) if n == layer], 1)
        for layer in dict.fromkeys(names)
    ]
    target = torch.full((groups[0].shape[0],), 0.01)

    def step() -> None:
        for updates in groups:
            norms = updates.norm(dim=1)
            unit = updates / norms.clamp_min(1e-12)[:, None]
            reference = unit.mean(0)
            reference + torch.linalg.pinv(unit) @ (target - unit @ reference)

    return median(step, repeats)
