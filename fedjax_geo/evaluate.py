"""How well a model serves each client, and how evenly."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_geo import parallel, tree
from fedjax_geo.batches import Work, cut, num_local_steps, places, serve
from fedjax_geo.objective import apply_model
from fedjax_geo.types import (
    Array,
    Batch,
    ClientAlgorithm,
    Examples,
    FederatedData,
    Key,
    PyTree,
    Split,
    Task,
    Variables,
    serve_global,
)

BATCH = 500  # examples of a pass over all clients' examples


class ClientScores(NamedTuple):
    """Sums over each client's examples, ``[n]`` each."""

    correct: Array
    loss: Array
    size: Array


class FlatSplit(NamedTuple):
    """A split without padding: which examples, and whose they are. ``T`` examples in all."""

    indices: Array  # [T] int32
    owners: Array  # [T] int32


def flatten(split: Split) -> FlatSplit:
    """The padded index table of a split as one list, on the host."""
    indices, sizes = np.asarray(split.indices), np.asarray(split.sizes)
    filled = np.arange(indices.shape[1])[None, :] < sizes[:, None]
    flat: Any = indices[filled].astype(np.int32)
    owners: Any = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    return FlatSplit(flat, owners)


def _score(task: Task, variables: Variables, batch: Batch) -> tuple[Array, Array]:
    """Correct predictions (0 or 1) and losses of a batch, zero where it is padded; ``[b]`` each."""
    logits, _ = apply_model(task, variables, batch, train=False, key=jax.random.key(0))
    # argmax would take NaN for the largest
    right = (jnp.argmax(logits, axis=-1) == batch.y) & jnp.all(jnp.isfinite(logits), axis=-1)
    correct = right.astype(jnp.float32)
    losses = task.example_loss(logits, batch.y).astype(jnp.float32)
    return jnp.where(batch.mask, correct, 0), jnp.where(batch.mask, losses, 0)


def score_global(
    task: Task,
    variables: Variables,
    examples: Examples,
    split: FlatSplit,
    num_clients: int,
    *,
    batch_size: int = BATCH,
    strategy: parallel.Strategy | None = None,
    so_far: ClientScores | None = None,
) -> ClientScores:
    """One model on every client's examples, in full batches across clients.

    Args:
        task: model and loss.
        variables: the model that all clients are served.
        examples: the flat copy.
        split: whose examples are scored; those whose owner is n are nobody's and do not count.
        num_clients: n.
        batch_size: examples per pass.
        strategy: its mesh shares the passes, which follow one another on each device; default the one device.
        so_far: sums that are gone on from, of other examples; default zeros.
    """
    mesh = None if strategy is None else strategy.mesh
    total = split.indices.shape[0]
    batch_size = min(batch_size, max(total, 1))

    def one(index: Array, shared: tuple) -> tuple[Array, Array]:
        variables, examples, indices = shared
        where, true = places(total, index, batch_size)
        rows = indices[where]
        return _score(task, variables, Batch(examples.x[rows], examples.y[rows], true))

    if so_far is None:
        so_far = ClientScores(*[jnp.zeros((num_clients,), jnp.float32)] * 3)
    if total == 0:
        return so_far
    passes = jnp.arange(-(-total // batch_size), dtype=jnp.int32)
    by_pass = parallel.map_clients(
        one, passes, (variables, examples, jnp.asarray(split.indices)), parallel.Strategy(chunk=1, mesh=mesh)
    )  # [passes, b]
    correct, loss = (
        sums.at[split.owners].add(values.reshape(-1)[:total], mode="drop")
        for sums, values in zip(so_far[:2], by_pass, strict=True)
    )
    return ClientScores(correct, loss, so_far.size.at[split.owners].add(1, mode="drop"))


def score_personal(
    task: Task,
    client: ClientAlgorithm,
    variables: Variables,
    states: PyTree,
    data: FederatedData,
    strategy: parallel.Strategy,
    *,
    batch_size: int = 20,
    work: Work = Work(),
    round: Array | int = 0,
    key: Key | None = None,
    ids: Array | None = None,
) -> ClientScores:
    """Each client's own model on its own test examples.

    That is ``client.personalize(variables, state)``, or, of a client that adapts, the model after its training on
    its own training examples from the present variables. Every client does, whether it was ever sampled or not. Of
    the models only those of a chunk exist at a time.

    Args:
        task: model and loss.
        client: the algorithm that has trained.
        variables: the global model.
        states: of all clients, leaves ``[n, ...]``.
        data: the federation, or some clients of one.
        strategy: the layout; the chunk is how many models there are at a time on each device.
        batch_size: test examples per pass.
        work: the batches of clients that adapt.
        round: finished rounds, for their learning rates.
        key: of the run, for their randomness; default that of seed 0.
        ids: the clients' numbers in the whole federation, int32 ``[n]``; default ``0..n-1``.
    """
    key = jax.random.key(0) if key is None else key
    key = jax.random.fold_in(jax.random.fold_in(key, 3), round)  # 0 to 2 are the round's
    ids = jnp.arange(data.num_clients, dtype=jnp.int32) if ids is None else ids

    def serve_own(i: Array, data: FederatedData, variables: Variables, state: PyTree, key: Key) -> Variables:
        if client.adapt is None:
            return client.personalize(variables, state)
        shuffle_key, adapt_key = jax.random.split(key)
        batches = serve(data.examples, data.train.indices[i], data.train.sizes[i], shuffle_key, work)
        return client.adapt(task, variables, state, batches, round=jnp.asarray(round, jnp.int32), key=adapt_key)

    def one(i: Array, shared: tuple) -> tuple[Array, Array]:
        data, variables, states, key, ids = shared
        own = serve_own(i, data, variables, tree.take(states, i), jax.random.fold_in(key, ids[i]))
        indices, size = data.test.indices[i], data.test.sizes[i]

        def add_batch(index: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
            correct, losses = _score(task, own, cut(data.examples, indices, size, index, batch_size))
            return sums[0] + jnp.sum(correct), sums[1] + jnp.sum(losses)

        zero = jnp.zeros((), jnp.float32)
        return jax.lax.fori_loop(0, -(-size // batch_size), add_batch, (zero, zero))

    # The longest together, as in a round.
    lengths = data.test.sizes if client.adapt is None else num_local_steps(data.train.sizes, work)
    order = parallel.arrange(lengths, strategy)
    correct, loss = parallel.map_clients(one, order, (data, variables, states, key, ids), strategy)
    place = jnp.argsort(order)
    return ClientScores(correct[place], loss[place], data.test.sizes.astype(loss.dtype))


def is_personal(client: ClientAlgorithm) -> bool:
    """Whether a client serves another model than the global one."""
    return client.personalize is not serve_global or client.adapt is not None


def accuracies(scores: ClientScores) -> np.ndarray:
    """Accuracy of each client, NaN for clients without examples, float64 ``[n]``."""
    correct, size = np.asarray(scores.correct, np.float64), np.asarray(scores.size, np.float64)
    return np.divide(correct, size, out=np.full_like(size, np.nan), where=size > 0)


_STATISTICS = (
    "client_mean",
    "example_mean",
    "std",
    "noise_floor",
    "worst10",
    "best10",
    "worst",
    "best",
    "jain",
    "loss",
)


def summarize(scores: ClientScores) -> dict[str, float]:
    """What a table says about a model that serves many clients.

    Clients without examples are left out of everything; ``clients`` counts the others. Without any, all is NaN.

    Args:
        scores: of ``n`` clients.

    Returns:
        * ``client_mean``: mean over clients of their accuracies.
        * ``example_mean``: accuracy over all examples pooled, the example-weighted mean.
        * ``std``: population standard deviation over clients.
        * ``noise_floor``: the std that test sets of these sizes would show if the model were equally good
          for every client, ``sqrt(p (1 - p) mean(1 / n_i))`` with p the client mean.
        * ``worst10``, ``best10``: mean of the ``max(1, floor(n / 10))`` lowest and highest accuracies.
        * ``worst``, ``best``.
        * ``jain``: Jain's index ``(sum a)^2 / (n sum a^2)``, 1 when all are equal.
        * ``loss``: example-weighted mean loss, nats.

    >>> thirds = ClientScores(np.array([0.0, 1.0, 2.0, 0.0]), np.zeros(4), np.array([2.0, 2.0, 2.0, 0.0]))
    >>> summary = summarize(thirds)
    >>> round(summary["std"], 4), round(summary["jain"], 4), summary["clients"]
    (0.4082, 0.6, 3)
    """
    size = np.asarray(scores.size, np.float64)
    tested = size > 0
    if not tested.any():
        return {"clients": 0, **dict.fromkeys(_STATISTICS, float("nan"))}
    values = np.sort(accuracies(scores)[tested])
    tail = max(1, len(values) // 10)
    mean = float(values.mean())
    squares = float(np.square(values).sum())
    return {
        "clients": int(tested.sum()),
        "client_mean": mean,
        "example_mean": float(np.asarray(scores.correct, np.float64).sum() / size.sum()),
        "std": float(values.std()),
        "noise_floor": float(np.sqrt(max(mean * (1 - mean), 0.0) * (1 / size[tested]).mean())),
        "worst10": float(values[:tail].mean()),
        "best10": float(values[-tail:].mean()),
        "worst": float(values[0]),
        "best": float(values[-1]),
        "jain": float(values.sum() ** 2 / (len(values) * squares)) if squares > 0 else 1.0,
        "loss": float(np.asarray(scores.loss, np.float64).sum() / size.sum()),
    }
