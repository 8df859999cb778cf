"""A round in Flower: its FedAvg strategy in its simulation engine, an actor of one thread for each core.

Every actor keeps all clients' tensors in memory. The round is timed at the server, from the end of one to the end
of the next, so that Ray's start does not count, and Flower's messages, its waits for them (it looks ten times a
second) and its aggregation do.
"""

import functools
import time

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.torch_loop import Clients


@functools.cache
def clients_of(name: str) -> Clients:
    """Loaded once in each actor."""
    torch.set_num_threads(1)
    return Clients(name)


def client_app(name: str) -> ClientApp:
    """One local epoch of the client whose turn it is."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        clients = clients_of(name)
        x, y = clients.data[int(context.node_config["partition-id"])]
        clients.model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        clients.epoch(x, y)
        arrays = ArrayRecord(clients.model.state_dict())
        metrics = MetricRecord({"num-examples": len(y)})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return app


def rounds(name: str, actors: int, repeats: int) -> dict[str, float | None]:
    """Median time of a round after the first."""
    clients = Clients(name)
    ends: list[float] = []
    results = []
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(
            fraction_evaluate=0.0,
            min_train_nodes=len(clients.data),  # a fraction is taken of those that have connected by then
            min_available_nodes=len(clients.data),
            train_metrics_aggr_fn=lambda replies, weight: MetricRecord({"replies": len(replies)}),
        )
        results.append(
            strategy.start(
                grid,
                ArrayRecord(clients.start),
                num_rounds=repeats + 1,
                evaluate_fn=lambda round, arrays: ends.append(time.perf_counter()),
            )
        )

    resources = {"init_args": {"num_cpus": actors}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(app, client_app(name), num_supernodes=len(clients.data), backend_config=resources)
    if any(metrics["replies"] < len(clients.data) for metrics in results[0].train_metrics_clientapp.values()):
        raise RuntimeError("some clients of Flower's rounds failed; its log says why")
    clients.must_have_learned(results[0].arrays.to_torch_state_dict())
    return {"seconds": float(np.median(np.diff(ends[1:]))), "memory": None}  # ends[0] is from before the first
