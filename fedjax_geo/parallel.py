"""Mapping a function of one client over a cohort. The only module that knows about devices."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from fedjax_geo import tree
from fedjax_geo.types import Array, PyTree

AXIS = "clients"


class Strategy(NamedTuple):
    """How a cohort is laid over the hardware.

    Attributes:
        chunk: clients trained side by side by one ``vmap``; chunks follow one another. None: all at once.
        mesh: devices that share the cohort, on one axis called ``clients``; None: the default device.
        halvings: further batch sizes, each half of the one before, in which a local step on a last batch that is
            not full may be computed. Each is one more compilation of that step; only with a chunk of 1, since side
            by side all of them would be computed.
    """

    chunk: int | None = None
    mesh: Mesh | None = None
    halvings: int = 0

    @property
    def num_devices(self) -> int:
        """Devices that share the cohort."""
        return 1 if self.mesh is None else self.mesh.size

    def short_batches(self, batch_size: int) -> tuple[int, ...]:
        """The further batch sizes, rising.

        >>> Strategy(chunk=1, halvings=2).short_batches(20)
        (5, 10)
        """
        halves = {-(-batch_size // 2**k) for k in range(1, self.halvings + 1)}
        return tuple(sorted(halves - {batch_size}))


def default_strategy() -> Strategy:
    """One client after another on a CPU, the whole cohort at once on an accelerator.

    A CPU core is busy with one client's matmuls, and a batched convolution or matmul with one kernel per
    client is slower there; an accelerator needs the width.
    """
    return Strategy(chunk=1 if jax.default_backend() == "cpu" else None)


def clients_mesh(num_devices: int | None = None) -> Mesh:
    """A mesh of the first ``num_devices`` devices (default: all) on the axis ``clients``.

    Raises:
        ValueError: if there are fewer devices.
    """
    available = len(jax.devices())
    wanted = available if num_devices is None else num_devices
    if not 1 <= wanted <= available:
        raise ValueError(f"num_devices must be between 1 and the {available} that exist, got {wanted}")
    devices = np.array(jax.devices()[:wanted])
    return Mesh(devices, (AXIS,), axis_types=(AxisType.Auto,))


def check(strategy: Strategy) -> Strategy:
    """The strategy, checked.

    Raises:
        ValueError: if the chunk is not positive, the mesh has other axes than ``clients``, or there are halvings
            with clients side by side.
    """
    if strategy.chunk is not None and strategy.chunk < 1:
        raise ValueError(f"strategy.chunk must be at least 1 or None, got {strategy.chunk}")
    if strategy.mesh is not None and strategy.mesh.axis_names != (AXIS,):
        raise ValueError(f"strategy.mesh needs the one axis '{AXIS}', got {strategy.mesh.axis_names}")
    if strategy.halvings < 0 or (strategy.halvings and strategy.chunk != 1):
        raise ValueError(
            "strategy.halvings must be 0, or positive with a chunk of 1, "
            f"got halvings {strategy.halvings} and chunk {strategy.chunk}"
        )
    return strategy


def replicated(strategy: Strategy) -> NamedSharding | None:
    """The sharding of what every device holds whole; None on a single device."""
    return None if strategy.mesh is None else NamedSharding(strategy.mesh, PartitionSpec())


def replicate(tree: PyTree, strategy: Strategy) -> PyTree:
    """The tree on the device, or copied to every device of the mesh.

    A mesh may span processes; each of them gives the same tree then.
    """
    sharding = replicated(strategy)
    if sharding is None:
        return jax.tree.map(jnp.asarray, tree)

    def put(leaf: Any) -> Array:
        if jnp.issubdtype(
            jnp.result_type(leaf), jax.dtypes.prng_key
        ):  # its bits: JAX sends no key to other processes
            return jax.random.wrap_key_data(put(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf))
        return jax.device_put(leaf, sharding)

    return jax.tree.map(put, tree)


def arrange(lengths: Array, strategy: Strategy) -> Array:
    """An order of the cohort in which chunks hold clients of like length.

    Longest first; with several devices the sorted clients are dealt out in turn, so that the devices get
    equal work (when the cohort divides evenly among them).

    Args:
        lengths: local steps of each client, ``[m]``.
        strategy: the layout.

    Returns:
        Permutation of ``0..m-1``, int32 ``[m]``.
    """
    order = jnp.argsort(-lengths, stable=True).astype(jnp.int32)
    devices = strategy.num_devices
    if lengths.shape[0] % devices == 0:
        order = order.reshape(-1, devices).T.reshape(-1)
    return order


def map_clients(
    function: Callable[[PyTree, PyTree], PyTree], clients: PyTree, shared: PyTree, strategy: Strategy
) -> PyTree:
    """``function(client, shared)`` for every client.

    Args:
        function: pure function of one client's tree and of what all clients share.
        clients: leaves ``[m, ...]``.
        shared: seen whole by every client.
        strategy: the layout; the result does not depend on it, except by rounding.

    Returns:
        The stacked results, leaves ``[m, ...]``.
    """
    results, _ = fold_clients(lambda client, shared: (function(client, shared), ()), clients, shared, strategy)
    return results


def fold_clients(
    function: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    clients: PyTree,
    shared: PyTree,
    strategy: Strategy,
) -> tuple[PyTree, PyTree]:
    """Some results of every client stacked, others summed on the way, so that memory for them follows the chunk.

    Args:
        function: pure function of one client's tree and of what all clients share -> what is stacked, and what
            is summed over the clients.
        clients: leaves ``[m, ...]``.
        shared: seen whole by every client.
        strategy: the layout; the results do not depend on it, except by rounding.

    Returns:
        The stacked results, leaves ``[m, ...]``, and the sums, the same on every device.
    """
    m = jax.tree.leaves(clients)[0].shape[0]
    devices = strategy.num_devices
    per_device = -(-m // devices)
    chunk = min(strategy.chunk or per_device, per_device)
    chunks = -(-per_device // chunk)
    padded = devices * chunks * chunk

    def one(client: PyTree, place: Array, shared: PyTree) -> tuple[PyTree, PyTree]:
        result, addend = function(client, shared)
        if padded != m:  # a repeated client must not count twice
            addend = tree.select(place < m, addend, tree.zeros_like(addend))
        return result, addend

    def by_itself(some: tuple[PyTree, Array], shared: PyTree) -> tuple[PyTree, PyTree]:
        client, place = some
        return one(client, place, shared)

    def side_by_side(some: tuple[PyTree, Array], shared: PyTree) -> tuple[PyTree, PyTree]:
        results, addends = jax.vmap(one, in_axes=(0, 0, None))(*some, shared)
        return results, jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), addends)

    def on_one_device(clients: PyTree, places: Array, shared: PyTree) -> tuple[PyTree, PyTree]:
        everybody = (clients, places)
        if chunks == 1 and chunk > 1:
            results, sums = side_by_side(everybody, shared)
        else:
            train = by_itself if chunk == 1 else side_by_side
            if chunk > 1:
                everybody = jax.tree.map(lambda leaf: leaf.reshape(chunks, chunk, *leaf.shape[1:]), everybody)

            def step(sums: PyTree, some: tuple[PyTree, Array]) -> tuple[PyTree, PyTree]:
                results, addends = train(some, shared)
                return tree.add(sums, addends), results

            first = jax.tree.map(lambda leaf: leaf[0], everybody)
            zero = tree.zeros_like(jax.eval_shape(train, first, shared)[1])
            sums, results = jax.lax.scan(step, zero, everybody)
            if chunk > 1:
                results = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), results)
        return results, sums if strategy.mesh is None else jax.lax.psum(sums, AXIS)

    places = jnp.arange(padded, dtype=jnp.int32)
    if padded != m:  # repeat the last client, the shortest in an arranged cohort, and drop it afterwards
        clients = jax.tree.map(lambda leaf: leaf[jnp.minimum(places, m - 1)], clients)
    if strategy.mesh is not None:
        over_clients, whole = PartitionSpec(AXIS), PartitionSpec()
        on_one_device = jax.shard_map(
            on_one_device,
            mesh=strategy.mesh,
            in_specs=(over_clients, over_clients, whole),
            out_specs=(over_clients, whole),
            check_vma=False,
        )
    results, sums = on_one_device(clients, places, shared)
    return (results if padded == m else jax.tree.map(lambda leaf: leaf[:m], results)), sums
