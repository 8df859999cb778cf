"""A round in BlazeFL: its FedAvg from ``blazefl.contrib``, with each client's tensors in memory.

Clients one after another, or in a pool of threads, which it recommends (at its best in a Python without the global
lock). Its own data loaders are PyTorch's; here a client's batches are taken from its tensors, shuffled, as in
``torch_loop``. It flattens parameters by views, so that kernels cannot be channels last; images are.
"""

import copy
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from blazefl.contrib import FedAvgBaseClientTrainer, FedAvgBaseServerHandler, FedAvgThreadPoolClientTrainer
from torch import nn

from benchmarks.torch_loop import Clients
from benchmarks.workload import BATCH_SIZE, LEARNING_RATE


class Batches:
    """What a data loader of one client would give."""

    def __init__(self, tensors: tuple[torch.Tensor, torch.Tensor], generator: torch.Generator) -> None:
        """Images and labels, and what shuffles them."""
        (self.x, self.dataset), self.generator = tensors, generator  # the dataset is asked for its length only

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """One epoch."""
        for rows in torch.randperm(len(self.dataset), generator=self.generator).split(BATCH_SIZE):
            yield self.x[rows], self.dataset[rows]


class Parts(NamedTuple):
    """The clients' data and the model, by BlazeFL's two protocols."""

    clients: Clients
    model: nn.Module

    def get_dataloader(self, type_: Any, cid: int, batch_size: int, generator: torch.Generator) -> Batches:
        """The training examples of a client."""
        return Batches(self.clients.data[cid], generator)

    def select_model(self, model_name: str) -> nn.Module:
        """A model of one's own."""
        return copy.deepcopy(self.model)


def rounds(name: str, threads: int, repeats: int) -> dict[str, float]:
    """Median time of a round after the first."""
    torch.set_num_threads(1)
    clients = Clients(name)
    parts = Parts(clients, clients.model.to(memory_format=torch.contiguous_format))
    m = len(clients.data)
    common = {"model_selector": parts, "model_name": name, "dataset": parts, "num_clients": m, "device": "cpu"}
    common |= {"batch_size": BATCH_SIZE, "seed": 0}
    server = FedAvgBaseServerHandler(**common, global_round=repeats + 1, sample_ratio=1.0)
    common |= {"epochs": 1, "lr": LEARNING_RATE}
    if threads > 1:
        trainer = FedAvgThreadPoolClientTrainer(**common, num_parallels=threads)
    else:
        trainer = FedAvgBaseClientTrainer(**common)
    times = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        sampled = server.sample_clients()
        trainer.local_process(server.downlink_package(), sampled)
        for package in trainer.uplink_package():
            server.load(package)
        times.append(time.perf_counter() - begin)
    clients.must_have_learned(server.model.state_dict())
    return {"seconds": float(np.median(times[1:]))}
