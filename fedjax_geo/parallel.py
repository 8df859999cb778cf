"""Mapping a function of one client over a cohort. The only module that knows about devices."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from fedjax_geo.types import Array, PyTree

AXIS = "clients"


class Strategy(NamedTuple):
    """How a cohort is laid over the hardware.

    Attributes:
        chunk: clients trained side by side by one ``vmap``; chunks follow one another. None: all at once.
        mesh: devices that share the cohort, on one axis called ``clients``; None: the default device.
    """

    chunk: int | None = None
    mesh: Mesh | None = None

    @property
    def num_devices(self) -> int:
        """Devices that share the cohort."""
        return 1 if self.mesh is None else self.mesh.size


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
        ValueError: if the chunk is not positive or the mesh has other axes than ``clients``.
    """
    if strategy.chunk is not None and strategy.chunk < 1:
        raise ValueError(f"strategy.chunk must be at least 1 or None, got {strategy.chunk}")
    if strategy.mesh is not None and strategy.mesh.axis_names != (AXIS,):
        raise ValueError(f"strategy.mesh needs the one axis '{AXIS}', got {strategy.mesh.axis_names}")
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
    m = jax.tree.leaves(clients)[0].shape[0]
    devices = strategy.num_devices
    per_device = -(-m // devices)
    chunk = min(strategy.chunk or per_device, per_device)
    chunks = -(-per_device // chunk)

    def on_one_device(clients: PyTree, shared: PyTree) -> PyTree:
        side_by_side = jax.vmap(function, in_axes=(0, None))
        if chunks == 1:
            return side_by_side(clients, shared)
        if chunk == 1:
            return jax.lax.map(lambda client: function(client, shared), clients)
        cut = jax.tree.map(lambda leaf: leaf.reshape(chunks, chunk, *leaf.shape[1:]), clients)
        done = jax.lax.map(lambda some: side_by_side(some, shared), cut)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), done)

    padded = devices * chunks * chunk
    if padded != m:  # repeat the last client, the shortest in an arranged cohort, and drop it afterwards
        index = jnp.minimum(jnp.arange(padded), m - 1)
        clients = jax.tree.map(lambda leaf: leaf[index], clients)
    if strategy.mesh is not None:
        over_clients, whole = PartitionSpec(AXIS), PartitionSpec()
        on_one_device = jax.shard_map(
            on_one_device,
            mesh=strategy.mesh,
            in_specs=(over_clients, whole),
            out_specs=over_clients,
            check_vma=False,
        )
    results = on_one_device(clients, shared)
    return results if padded == m else jax.tree.map(lambda leaf: leaf[:m], results)
