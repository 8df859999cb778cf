"""Several devices, and two processes with two CPU devices each, give what one device gives."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
import toys

from fedjax_geo import Strategy, Work, evaluate, parallel, simulate
from fedjax_geo.aggregators import craft, weighted_mean
from fedjax_geo.clients import local_sgd, scaffold
from fedjax_geo.models import mlp
from fedjax_geo.objective import cross_entropy
from fedjax_geo.parallel import clients_mesh
from fedjax_geo.types import Method, Task
from fedjax_geo.weightings import by_examples, uniform

ROUNDS = {"fedavg": 3, "craft": 1, "scaffold": 3}  # of CRAFT one aggregation, as among the layouts
TOLERANCE = {"fedavg": 1e-5, "craft": 1e-4, "scaffold": 1e-5}
LIMIT = 240  # seconds, for both processes


def methods():
    return {
        "fedavg": Method(local_sgd(optax.sgd(0.1)), by_examples(), optax.chain(weighted_mean(), optax.sgd(1.0))),
        "craft": Method(local_sgd(optax.sgd(0.1)), by_examples(), optax.chain(craft(), optax.sgd(0.5))),
        "scaffold": Method(scaffold(0.1), uniform(), optax.chain(weighted_mean(), optax.sgd(1.0))),
    }


def outcome(name, strategy, callbacks=()):
    """Final parameters, states that clients keep, and evaluations of a run, as lists of numbers."""
    result = simulate(
        methods()[name],
        mlp(3, hidden=(5,)),
        toys.ragged(),
        rounds=ROUNDS[name],
        cohort=6,
        work=Work(batch_size=4),
        eval_every=2,
        strategy=strategy,
        callbacks=callbacks,
    )
    kept = jax.device_get((result.state.variables.params, result.state.clients))
    return {
        "state": np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(kept)]).tolist(),
        "accuracies": [e.accuracies["global"][1:].tolist() for e in result.evaluations],  # client 0 is empty
        "losses": [e.summaries["global"]["loss"] for e in result.evaluations],
        "train_losses": [m["train_loss"] for m in result.metrics],
    }


def work_together(rank, address):
    """What each of the two processes does; the first prints what came out."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 2)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    jax.config.update("jax_disable_most_optimizations", True)
    jax.distributed.initialize(address, 2, rank, initialization_timeout=LIMIT // 2)
    assert len(jax.devices()) == 4 and len(jax.local_devices()) == 2
    told = []
    strategy = Strategy(mesh=clients_mesh(4))
    outcomes = {name: outcome(name, strategy, [lambda event: told.append(event.seconds)]) for name in ROUNDS}
    assert told
    if rank == 0:
        print(json.dumps(outcomes))


def free_port():
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]
    except OSError as error:
        pytest.skip(f"no local port: {error}")


@pytest.fixture(scope="module")
def together():
    address = f"127.0.0.1:{free_port()}"
    commands = [[sys.executable, __file__, str(rank), address] for rank in range(2)]
    folder = Path(__file__).parent
    workers = [
        subprocess.Popen(c, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for c in commands
    ]
    try:
        output, errors = workers[0].communicate(timeout=LIMIT)
        workers[1].communicate(timeout=LIMIT)
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    if "gloo" in errors and "not available" in errors:
        pytest.skip("this jaxlib has no gloo collectives")
    assert [w.returncode for w in workers] == [0, 0], errors
    return json.loads(output.splitlines()[-1])


def test_devices_that_share_the_evaluation_score_as_one_device():
    """Eight passes on three and on four devices."""
    data = toys.ragged()
    task = Task(mlp(3, hidden=(5,)), data.prepare, cross_entropy)
    split = evaluate.flatten(data.test)
    variables = task.model.init(jax.random.key(0), data.examples.x[:1])

    def score(strategy):
        placed = parallel.replicate((variables, data.examples, split), strategy)
        function = lambda *args: evaluate.score_global(task, *args, 8, batch_size=8, strategy=strategy)  # noqa: E731
        return jax.jit(function)(*placed)

    alone = score(Strategy())
    assert float(alone.size.sum()) == 57
    for devices in (3, 4):
        shared = score(Strategy(mesh=clients_mesh(devices)))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), shared, alone)


@pytest.mark.slow
@pytest.mark.parametrize("name", ROUNDS)
def test_two_processes_agree_with_one_device(together, name):
    alone = outcome(name, Strategy())
    assert alone.keys() == together[name].keys()
    for what, expected in alone.items():
        np.testing.assert_allclose(together[name][what], expected, atol=TOLERANCE[name], err_msg=what)


if __name__ == "__main__":
    work_together(int(sys.argv[1]), sys.argv[2])
