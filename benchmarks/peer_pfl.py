"""A round in pfl-research (Apple): its FederatedAveraging, with each client's tensors in memory, cut once.

In one process, or in several under ``torchrun``, which then share the clients of a round by their sizes, as
https://apple.github.io/pfl-research recommends. A client's batches stay as they were cut: pfl does not shuffle.
"""

import time

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import nn
from torch.nn import functional as F

from benchmarks.torch_loop import Clients
from benchmarks.workload import BATCH_SIZE, LEARNING_RATE


class Net(nn.Module):
    """A classifier that knows its loss and its metrics, as pfl asks."""

    def __init__(self, classifier: nn.Module) -> None:
        """Wraps images -> logits."""
        super().__init__()
        self.classifier = classifier

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Mean loss of a batch."""
        return F.cross_entropy(self.classifier(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Weighted]:
        """Of one client, in the first round only, which does not count."""
        return {"loss": Weighted(self.loss(x, y).item() * len(y), len(y))}


class Clock(TrainingProcessCallback):
    """When each round ended."""

    def __init__(self) -> None:
        """Starts with none."""
        self.ends: list[float] = []

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Notes the time and goes on."""
        self.ends.append(time.perf_counter())
        return False, Metrics()


def rounds(name: str, processes: int, repeats: int) -> dict[str, float | None]:
    """Median time of a round after the first; each of ``torchrun``'s processes calls this."""
    torch.set_num_threads(1)
    np.random.seed(0)  # the processes must draw the same clients
    clients = Clients(name)
    users = [PyTorchTensorDataset(tensors) for tensors in clients.data]
    sizes = {i: len(user) for i, user in enumerate(users)}
    data = FederatedDataset(users.__getitem__, MinimizeReuseUserSampler(list(sizes)), sizes)
    net = Net(clients.model)
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), 1.0))
    clock = Clock()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=repeats + 1,
            evaluation_frequency=repeats + 1,
            train_cohort_size=len(users),
            val_cohort_size=0,
        ),
        SimulatedBackend(data, data, [WeightByDatapoints()]),
        model,
        NNTrainHyperParams(local_batch_size=BATCH_SIZE, local_num_epochs=1, local_learning_rate=LEARNING_RATE),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    clients.must_have_learned({k: v.clone() for k, v in net.classifier.state_dict().items()})
    seconds: dict[str, float | None] = {"seconds": float(np.median(np.diff(clock.ends)))}
    return seconds | ({"memory": None} if processes > 1 else {})
