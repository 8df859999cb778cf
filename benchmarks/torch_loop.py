"""A round in PyTorch as its best: tensors in memory, one client after another, no data loader.

On a CPU with one thread, with all threads, channels last for convolutions, and as processes of one thread that
share the clients. On a GPU one client after another in both layouts, and all clients side by side as one ``vmap``.
Nothing here was run on a GPU yet; the same code is tested on a CPU. CRAFT's step as its authors' code takes it:
one pseudo-inverse for each layer.
"""

import time
from collections.abc import Callable, Mapping, Sequence
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

    def __init__(
        self, name: str, rank: int = 0, share: int = 1, device: str = "cpu", channels_last: bool = True
    ) -> None:
        """Takes every ``share``-th client by size, from ``rank`` on, so that shares are alike.

        Args:
            name: of the workload.
            rank: of the largest client.
            share: processes that share the clients.
            device: where tensors and model live, ``cpu`` or ``cuda``.
            channels_last: the layout of images and kernels, if the model has convolutions.
        """
        data = one_round(WORKLOADS[name])
        layout = torch.channels_last if channels_last and name != "mlp" else torch.contiguous_format
        sizes = np.asarray(data.train.sizes)
        self.data = []
        for i in np.argsort(-sizes)[rank::share]:
            index = np.asarray(data.train.indices)[i, : sizes[i]]
            x = torch.from_numpy(np.array(data.prepare(np.asarray(data.examples.x)[index])))
            x = x.permute(0, 3, 1, 2).contiguous(memory_format=layout).to(device)
            self.data.append((x, torch.from_numpy(np.asarray(data.examples.y)[index]).long().to(device)))
        torch.manual_seed(0)
        self.model = MODELS[name]().to(device=device, memory_format=layout)
        self.start = {k: v.clone() for k, v in self.model.state_dict().items()}

    def train(self) -> tuple[list[torch.Tensor], int]:
        """One local epoch of each client -> the sum of their updates weighted by examples, and the examples."""
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
            self.epoch(x, y)
            with torch.no_grad():
                yield torch._foreach_sub(start, list(self.model.parameters())), len(y)

    def epoch(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """One local epoch of the model, from where it is, on images [n, c, h, w] with labels [n]."""
        optimizer = torch.optim.SGD(self.model.parameters(), LEARNING_RATE)
        order = torch.randperm(len(y), device=y.device)
        for rows in order.split(BATCH_SIZE):
            optimizer.zero_grad()
            F.cross_entropy(self.model(x[rows]), y[rows]).backward()
            optimizer.step()

    @torch.no_grad()
    def loss(self, parameters: Mapping[str, torch.Tensor]) -> float:
        """Mean loss of all examples at these parameters, without dropout."""
        self.model.load_state_dict(parameters)
        self.model.eval()
        total = sum(float(F.cross_entropy(self.model(x), y, reduction="sum")) for x, y in self.data)
        self.model.train()
        return total / sum(len(y) for _, y in self.data)

    def must_have_learned(self, parameters: Mapping[str, torch.Tensor]) -> None:
        """Raises RuntimeError unless the loss is lower at these parameters than at the start."""
        before, after = self.loss(self.start), self.loss(parameters)
        if not after < before:
            raise RuntimeError(f"these rounds did not train: loss {before:.4f} before them, {after:.4f} after")


def timed(run: Callable[[], Any], repeats: int, device: str = "cpu") -> dict[str, float]:
    """Median wall time after one run that does not count; on a GPU also the most memory of tensors, GiB."""
    times = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    result = {"seconds": float(np.median(times[1:]))}
    if device == "cuda":
        result["memory"] = torch.cuda.max_memory_allocated() / 2**30
    return result


def one_process(
    name: str, threads: int, repeats: int, device: str = "cpu", channels_last: bool = True
) -> dict[str, float]:
    """One round's training, one client after another."""
    _set_up(threads, device)
    return timed(Clients(name, device=device, channels_last=channels_last).train, repeats, device)


def side_by_side(name: str, threads: int, repeats: int, device: str = "cpu") -> dict[str, float]:
    """One round's training, all clients at once."""
    _set_up(threads, device)
    return timed(stacked_round(Clients(name, device=device, channels_last=False)), repeats, device)


def stacked_round(clients: Clients) -> Callable[[], list[torch.Tensor]]:
    """A function that trains all clients at once -> what ``Clients.train`` returns, as one ``vmap``.

    Parameters are stacked [m, ...]. Step k takes batch k of the clients that have one, which are the first, since
    clients come by size; the last batch of a client is padded and masked.
    """
    model, start = clients.model, clients.start
    x, y = (torch.cat(parts) for parts in zip(*clients.data, strict=True))
    counts = [len(labels) for _, labels in clients.data]
    sizes = torch.tensor(counts, device=y.device)
    first = (sizes.cumsum(0) - sizes)[:, None]
    held = torch.arange(counts[0], device=y.device) < sizes[:, None]  # [m, capacity]

    def loss(
        params: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        losses = F.cross_entropy(torch.func.functional_call(model, params, (x,)), y, reduction="none")
        return (losses * mask).sum() / mask.sum()

    gradient = torch.func.vmap(torch.func.grad(loss), randomness="different")

    def train() -> list[torch.Tensor]:
        params = {k: p.expand(len(counts), *p.shape).clone() for k, p in start.items()}
        order = torch.rand(held.shape, device=y.device).masked_fill(~held, 2).argsort(1)  # a client's own first
        rows = (first + order).clamp_max(len(y) - 1)
        for k in range(0, counts[0], BATCH_SIZE):
            n = sum(count > k for count in counts)
            current = {name: p[:n] for name, p in params.items()}
            batch = rows[:n, k : k + BATCH_SIZE]
            gradients = gradient(current, x[batch], y[batch], held[:n, k : k + BATCH_SIZE].float())
            torch._foreach_sub_(list(current.values()), list(gradients.values()), alpha=LEARNING_RATE)
        return [torch.tensordot(sizes.float(), start[k] - p, 1) for k, p in params.items()]

    return train


def _set_up(threads: int, device: str) -> None:
    torch.set_num_threads(threads)
    if device == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32, which is also XLA's default on a GPU
        torch.backends.cudnn.benchmark = True


def _work(name: str, rank: int, share: int, pipe: Connection) -> None:
    torch.set_num_threads(1)
    clients = Clients(name, rank, share)
    while pipe.recv():
        pipe.send([t.numpy() for t in clients.train()[0]])


def processes(name: str, number: int, repeats: int) -> dict[str, float | None]:
    """One round's training, shared by processes of one thread each; the parent adds their sums."""
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

    result = timed(train, repeats)
    for pipe in pipes:
        pipe.send(False)
    for worker in workers:
        worker.join()
    return {**result, "memory": None}


def craft_step(name: str, threads: int, repeats: int, device: str = "cpu") -> dict[str, float]:
    """CRAFT's step with ``torch.linalg.pinv`` of each layer's stacked updates (weight and bias)."""
    _set_up(threads, device)
    clients = Clients(name, device=device)
    stacked = [torch.stack(leaf).flatten(1) for leaf in zip(*(u for u, _ in clients.updates()), strict=True)]
    names = [n.rsplit(".", 1)[0] for n, _ in clients.model.named_parameters()]
    groups = [
        torch.cat([u for u, n in zip(stacked, names, strict=True) if n == layer], 1)
        for layer in dict.fromkeys(names)
    ]
    target = torch.full((groups[0].shape[0],), 0.01, device=device)

    def step() -> None:
        for updates in groups:
            norms = updates.norm(dim=1)
            unit = updates / norms.clamp_min(1e-12)[:, None]
            reference = unit.mean(0)
            reference + torch.linalg.pinv(unit) @ (target - unit @ reference)

    return timed(step, repeats, device)
