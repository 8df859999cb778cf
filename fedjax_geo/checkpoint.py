"""Saving and resuming a run. A resumed run equals an uninterrupted one bit for bit.

The state, the history and the seed are all there is to save: keys are derived from the seed and the round, never
stored. A state that went on with another seed would be of neither run, so it is not handed out for that.
"""

from collections.abc import Callable
from pathlib import Path

import jax
import orbax.checkpoint as ocp

from fedjax_geo.simulate import Event
from fedjax_geo.types import RoundState


def save(folder: str | Path, state: RoundState, *, seed: int) -> None:
    """Write a state and the seed of its run as ``folder/<round>``; a write cut short leaves no checkpoint behind.

    Args:
        folder: made if missing.
        state: on any device; copied to the host.
        seed: as given to ``simulate``.
    """
    path = Path(folder).absolute() / str(int(state.round))
    with ocp.StandardCheckpointer() as writer:
        writer.save(path, jax.device_get(state), force=True, custom_metadata={"seed": int(seed)})


def rounds(folder: str | Path) -> list[int]:
    """Rounds of the complete checkpoints in a folder, ascending."""
    if not Path(folder).is_dir():
        return []
    return sorted(int(p.name) for p in Path(folder).iterdir() if p.is_dir() and p.name.isdigit())


def restore(folder: str | Path, like: RoundState, round: int | None = None, *, seed: int) -> RoundState:
    """Read a state back.

    Args:
        folder: where ``save`` wrote.
        like: a state of the same method, model and data, for structure, shapes and dtypes.
        round: which checkpoint; default the latest complete one.
        seed: of the run that goes on. A checkpoint from before seeds were kept fits any.

    Raises:
        FileNotFoundError: if there is no such checkpoint.
        ValueError: if it is of a run with another seed, or what is stored does not fit ``like``.
    """
    found = rounds(folder)
    wanted = (found[-1] if found else None) if round is None else round
    if wanted not in found:
        raise FileNotFoundError(f"no checkpoint of round {wanted} in {folder}; complete ones: {found}")
    path = Path(folder).absolute() / str(wanted)
    with ocp.StandardCheckpointer() as reader:
        stored = reader.metadata(path).custom_metadata.get("seed", seed)
        if stored != seed:
            raise ValueError(f"seed must be {stored}, that of the run saved in {path}, got {seed}")
        return reader.restore(path, jax.device_get(like))


def checkpoints(folder: str | Path, *, seed: int) -> Callable[[Event], None]:
    """A callback of ``simulate`` that saves the state after every block; ``seed`` as given to ``simulate``."""

    def callback(event: Event) -> None:
        save(folder, event.state, seed=seed)

    return callback
