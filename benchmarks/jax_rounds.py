"""A round of ours, its parts, and the loop over the same examples that knows nothing of clients."""

import os
import time
from typing import Any

import jax
import jax.numpy as jnp
import optax

from benchmarks.measure import seconds
from benchmarks.workload import BATCH_SIZE, LEARNING_RATE, Workload, fashion_mnist, one_round
from fedjax_geo import Strategy, Work, layers, parallel
from fedjax_geo.aggregators import averaged, craft, weighted_mean
from fedjax_geo.batches import cut
from fedjax_geo.clients import local_sgd
from fedjax_geo.objective import cross_entropy, training_loss
from fedjax_geo.round import make_round
from fedjax_geo.types import Examples, Method, PyTree, Task, Variables
from fedjax_geo.weightings import by_examples, fedvg

AGGREGATORS = {"fedavg": weighted_mean, "craft": craft}
SERVERS = {"fedavg": averaged, "craft": lambda step: optax.chain(craft(), step)}


def use_devices(number: int) -> Strategy:
    """That many virtual CPU devices, if the backend is the CPU; before anything is computed."""
    if os.environ.get("JAX_PLATFORMS", "cpu") == "cpu":
        jax.config.update("jax_num_cpu_devices", number)
    mesh = parallel.clients_mesh(number) if number > 1 else None
    return parallel.default_strategy()._replace(mesh=mesh)


def federated(workload: Workload, aggregator: str, strategy: Strategy, repeats: int) -> dict[str, float]:
    """A whole round: every client trains once, the server steps."""
    data = parallel.replicate(one_round(workload), strategy)
    task = Task(workload.model(data.num_classes), data.prepare, cross_entropy)
    method = Method(local_sgd(optax.sgd(LEARNING_RATE)), by_examples(), SERVERS[aggregator](optax.sgd(1.0)))
    process = make_round(
        method, task, cohort=workload.clients, work=Work(BATCH_SIZE), strategy=strategy, diagnose=None
    )
    key = parallel.replicate(jax.random.key(0), strategy)
    state = parallel.replicate(jax.jit(process.init)(key, data), strategy)
    begin = time.perf_counter()
    step = jax.jit(process.step).lower(state, key, data).compile()
    compiled = time.perf_counter() - begin
    return {"seconds": seconds(lambda: step(state, key, data), repeats), "compile": compiled}


def server_step(workload: Workload, aggregator: str, repeats: int) -> dict[str, float]:
    """The server's step alone, on random updates."""
    like = _variables(workload).params
    m = workload.clients
    keys = jax.random.split(jax.random.key(1), len(jax.tree.leaves(like)))
    keys = jax.tree.unflatten(jax.tree.structure(like), list(keys))
    updates = jax.tree.map(lambda p, k: jax.random.normal(k, (m, *p.shape), p.dtype), like, keys)
    server = AGGREGATORS[aggregator]()
    state = server.init(like)
    weights = jnp.full((m,), 1 / m)
    step = jax.jit(lambda updates: server.update(updates, state, like, weights=weights)[0])
    return {"seconds": seconds(lambda: step(updates), repeats)}


def fedvg_score(workload: Workload, strategy: Strategy, repeats: int, images: int = 1000) -> dict[str, float]:
    """FedVG's score of every client of the round: the gradient on ``images`` validation images."""
    source = fashion_mnist(workload.colour)
    validation = jax.tree.map(jnp.asarray, source.examples(slice(images)))
    task = Task(workload.model(source.num_classes), source.prepare, cross_entropy)
    weighting = fedvg()
    params = _variables(workload).params
    m = workload.clients
    models = jax.tree.map(lambda p: jnp.broadcast_to(p[None], (m, *p.shape)), params)

    def score(params: PyTree, validation: Examples) -> PyTree:
        return weighting.score(task, Variables(params), params, validation, jax.random.key(0))

    models, validation = parallel.replicate((models, validation), strategy)
    run = jax.jit(lambda models, validation: parallel.map_clients(score, models, validation, strategy))
    spent = seconds(lambda: run(models, validation), repeats)
    return {"seconds": spent, "examples": m * images}


def centralised(workload: Workload, repeats: int) -> dict[str, float]:
    """The floor: the round's examples as one jitted loop of steps of one model, in full batches."""
    data = one_round(workload)
    task = Task(workload.model(data.num_classes), data.prepare, cross_entropy)
    variables = _variables(workload)
    index = jnp.asarray(
        [i for row, size in zip(data.train.indices, data.train.sizes, strict=True) for i in row[:size]], jnp.int32
    )
    steps = -(-len(index) // BATCH_SIZE)
    loss = training_loss(task)

    @jax.jit
    def train(params: PyTree, examples: Examples, key: jax.Array) -> PyTree:
        def step(k: jax.Array, params: PyTree) -> PyTree:
            batch = cut(examples, index, jnp.int32(len(index)), k, BATCH_SIZE)
            gradient = jax.grad(lambda p: loss(Variables(p), batch, jax.random.fold_in(key, k))[0])(params)
            return jax.tree.map(lambda p, g: p - LEARNING_RATE * g, params, gradient)

        return jax.lax.fori_loop(0, steps, step, params)

    examples = jax.tree.map(jnp.asarray, data.examples)
    begin = time.perf_counter()
    compiled = train.lower(variables.params, examples, jax.random.key(0)).compile()
    spent = time.perf_counter() - begin
    run = lambda: compiled(variables.params, examples, jax.random.key(0))  # noqa: E731
    return {"seconds": seconds(run, repeats), "compile": spent}


def group_sizes(workload: Workload) -> dict[str, Any]:
    """Parameters, and the layer groups of CRAFT, for the heading."""
    params = _variables(workload).params
    labels = set(jax.tree.leaves(layers.module(params)))
    return {"parameters": sum(p.size for p in jax.tree.leaves(params)), "groups": len(labels)}


def _variables(workload: Workload) -> Variables:
    shape = (1, 32, 32, 3) if workload.colour else (1, 28, 28, 1)
    return workload.model(10).init(jax.random.key(0), jnp.ones(shape))
