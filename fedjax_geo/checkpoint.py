"""Saving and resuming a run. A resumed run equals an uninterrupted one bit for bit.

The state and the history are all there is to save: keys are derived from the seed and the round, never stored.
"""

from collections.abc import Callable
from pathlib import Path

import jax
import orbax.checkpoint as ocp

from fedjax_geo.simulate import Event
from fedjax_geo.types import RoundState


def save(folder: str | Path, state: RoundState) -> None:
    """Write a state as ``folder/<round>``; a write that is cut short leaves no checkpoint behind.

    Args:
        folder: made if missing.
        state: on any device; copied to the host.
    """
    with ocp.StandardCheckpointer() as writer:
        writer.save(Path(folder).absolute() / str(int(state.round)), jax.device_get(state), force=True)


def rounds(folder: str | Path) -> list[int]:
    """Rounds of the complete checkpoints in a folder, ascending."""
    if not Path(folder).is_dir():
        return []
    return sorted(int(p.name) for p in Path(folder).iterdir() if p.is_dir() and p.name.isdigit())


def restore(folder: str | Path, like: RoundState, round: int | None = None) -> RoundState:
    """Read a state back.

    Args:
        folder: where ``save`` wrote.
        like: a state of the same method, model and data, for structure, shapes and dtypes.
        round: which checkpoint; default the latest complete one.

    Raises:
        FileNotFoundError: if there is no such checkpoint.
        ValueError: if what is stored does not fit ``like``.
    """
    found = rounds(folder)
    wanted = (found[-1] if found else None) if round is None else round
    if wanted not in found:
        raise FileNotFoundError(f"no checkpoint of round {wanted} in {folder}; complete ones: {found}")
    with ocp.StandardCheckpointer() as reader:
        return reader.restore(Path(folder).absolute() / str(wanted), jax.device_get(like))


def checkpoints(folder: str | Path) -> Callable[[Event], None]:
    """A callback of ``simulate`` that saves the state after every block."""

    def callback(event: Event) -> None:
        save(folder, event.state)

    return callback
