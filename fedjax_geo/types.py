"""The vocabulary of the library, with shapes.

Symbols, used everywhere:

    n   clients in the population
    m   clients in this round's cohort
    b   examples in a batch
    K   local steps of one client in one round
    N   examples of the whole federation

"Stacked" means a leading client axis, ``m`` or ``n``, on every leaf. Updates are *pseudo-gradients*:
server parameters minus client parameters, so that any optax optimizer is a server optimizer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import optax

Array = jax.Array
PyTree = Any
Key = jax.Array


class Variables(NamedTuple):
    """What a model knows: trained parameters and statistics gathered on the way."""

    params: PyTree  # floating-point leaves only
    stats: PyTree = ()  # batch-norm statistics, or an empty tree


class Batch(NamedTuple):
    """A batch of one client's examples, padded to a fixed size."""

    x: Array  # [b, ...] as stored (images stay uint8)
    y: Array  # [b]
    mask: Array  # [b] bool, False where the batch is padded


class Examples(NamedTuple):
    """A flat set of examples, such as the server's validation set."""

    x: Array  # [N, ...]
    y: Array  # [N]


class Model(NamedTuple):
    """A model as pure functions.

    ``apply`` returns new statistics when ``train`` is true, the given ones otherwise. ``mask`` marks the
    true examples of a padded batch, for layers that mix examples. ``features`` returns what the last layer
    sees, for methods that compare representations; models that do not offer it leave it None.
    """

    init: Callable[[Key, Array], Variables]  # (key, x [b, ...])
    apply: Callable[..., tuple[Array, PyTree]]  # (variables, x, *, train, key, mask) -> (logits [b, c], stats)
    features: Callable[..., Array] | None = None  # (variables, x, *, train, key, mask) -> [b, f]


class Task(NamedTuple):
    """What is learned: a model, how stored inputs become model inputs, and a loss per example."""

    model: Model
    prepare: Callable[..., Array]  # (x [b, ...] as stored, *, train, key) -> float inputs
    example_loss: Callable[[Array, Array], Array]  # (logits [b, c], y [b]) -> [b]


class Batches(NamedTuple):
    """One client's work for one round: examples served by step number, shuffled anew every epoch.

    ``get`` and ``ordered`` are functions of a traced step. A client without examples has zero steps.
    """

    get: Callable[[Array], Batch]  # any step from 0 -> a training batch
    num_steps: Array  # K, int32 []
    ordered: Callable[[Array], Batch]  # index in [0, num_ordered) -> a batch of one pass over all examples
    num_ordered: Array  # int32 []
    num_examples: Array  # int32 []
    short: tuple[int, ...] = ()  # sizes below b, rising, in which a batch of no more true examples may be computed


class ClientOutput(NamedTuple):
    """What one client hands back."""

    update: PyTree  # pseudo-gradient, like params
    stats: PyTree  # the client's model statistics
    state: PyTree  # kept until this client is sampled again
    report: PyTree = ()  # anything the server side asked for
    metrics: dict[str, Array] = {}  # noqa: RUF012 - scalars a person reads
    answered: Array | bool = True  # if not, the server hears nothing and the client keeps its state
    num_steps: Array | None = None  # local steps taken, where they are not those of the batches


def _no_shared(params: PyTree) -> PyTree:
    del params
    return ()


def _keep_shared(shared: PyTree, before: PyTree, after: PyTree, num_clients: int) -> PyTree:
    del before, after, num_clients
    return shared


def _no_state(variables: Variables) -> PyTree:
    del variables
    return ()


def serve_global(variables: Variables, state: PyTree) -> Variables:
    """What a client trains, and serves, unless its algorithm personalises: the global model."""
    del state
    return variables


class ClientAlgorithm(NamedTuple):
    """How one client trains. Written for a single client; the round maps it over the cohort."""

    # (task, variables, shared, state, batches, *, round, key) -> ClientOutput
    train: Callable[..., ClientOutput]
    # variables -> state kept by each client between its rounds; () for stateless algorithms
    init: Callable[[Variables], PyTree] = _no_state
    # params -> what all clients receive beside the model in the first round
    init_shared: Callable[[PyTree], PyTree] = _no_shared
    # (shared, states before [m, ...], states after [m, ...], n) -> shared for the next round
    share: Callable[[PyTree, PyTree, PyTree, int], PyTree] = _keep_shared
    # (variables, state) -> what this client would serve
    personalize: Callable[[Variables, PyTree], Variables] = serve_global
    # (variables, state) -> the model that this client trains: the given one, with what it keeps in place
    complete: Callable[[Variables, PyTree], Variables] = serve_global
    # (task, variables, state, batches, *, round, key) -> what it serves once it has adapted to its training
    # examples, in place of personalize; taken when models are evaluated, nothing of it is kept
    adapt: Callable[..., Variables] | None = None


class Reports(NamedTuple):
    """What the cohort told the server, stacked."""

    client: PyTree  # ClientOutput.report, leaves [m, ...]
    score: PyTree  # Weighting.score, leaves [m, ...]


class RoundInfo(NamedTuple):
    """Everything a server link may ask for beside the updates, passed by keyword."""

    weights: Any  # [m], or a tree like params of [m]; sums to 1 over clients
    num_examples: Array  # [m] int32
    num_steps: Array  # [m] int32
    losses: Array  # [m] mean loss over the client's examples, before training, of the model that it trains
    client_ids: Array  # [m] int32
    num_clients: int  # n
    reports: Reports
    server_data: Examples | None
    round: Array  # int32 []
    key: Key


class Weighting(NamedTuple):
    """How much each client counts."""

    # (info without weights, state) -> (weights, state); weights need not be normalised
    weigh: Callable[[RoundInfo, PyTree], tuple[Any, PyTree]]
    # (task, client variables, update, server_data, key) -> report, inside the client map
    score: Callable[..., PyTree] = lambda *_: ()
    # n -> state
    init: Callable[[int], PyTree] = lambda _: ()
    needs_server_data: bool = False
    # (examples, loss, score of one client) -> the weight that weigh gives it, up to a factor common to the cohort;
    # None: what a client weighs depends on the others. Replace it together with weigh: rounds use either
    alone: Callable[[Array, Array, PyTree], Any] | None = None


Aggregator = optax.GradientTransformationExtraArgs


class MeanServer(optax.GradientTransformationExtraArgs):
    """A server that takes no more of the updates than their weighted mean: given that alone, it does the same."""


class Method(NamedTuple):
    """A federated method: three orthogonal choices."""

    client: ClientAlgorithm
    weighting: Weighting
    server: optax.GradientTransformation  # takes stacked updates [m, ...], returns a step [...] like params


class RoundState(NamedTuple):
    """What the next round needs."""

    round: Array  # int32 [], number of finished rounds
    variables: Variables
    server: PyTree
    weighting: PyTree
    clients: PyTree  # stacked over n
    shared: PyTree
    step: PyTree  # the last server step, parameters before minus after, like params


class Split(NamedTuple):
    """Which examples belong to which client: row i holds ``sizes[i]`` indices, then padding (zeros)."""

    indices: Array  # [n, capacity] int32
    sizes: Array  # [n] int32


@dataclass(frozen=True)
class FederatedData:
    """A federation: one flat copy of the examples and, per client, which of them are its own."""

    examples: Examples
    train: Split
    test: Split
    validation: Examples | None  # the server's own, or None
    num_classes: int
    prepare: Callable[..., Array]
    client_names: tuple[str, ...]
    provenance: str  # where the data came from and how it was cut

    @property
    def num_clients(self) -> int:
        """Clients in the population, n."""
        return self.train.indices.shape[0]


jax.tree_util.register_dataclass(
    FederatedData,
    data_fields=["examples", "train", "test", "validation"],
    meta_fields=["num_classes", "prepare", "client_names", "provenance"],
)
