"""The experiments of both papers, and a few of our own, by name."""

from dataclasses import replace
from pathlib import Path

from experiments.craft_presets import craft_presets
from experiments.datasets import load_source
from experiments.fedvg_presets import fedvg_presets
from experiments.own_presets import own_presets
from experiments.preset import Preset
from experiments.settings import Config
from fedjax_geo._validate import choose
from fedjax_geo.data import DatasetCorrupt, DatasetNotFound

PRESETS: dict[str, Preset] = {
    preset.name: preset for preset in (*craft_presets(), *fedvg_presets(), *own_presets())
}


def find(name: str) -> Preset:
    """The preset of a name.

    Raises:
        ValueError: for an unknown name, with the closest known one.
    """
    return choose("preset", PRESETS, name)


def describe(data_dir: Path | None = None) -> str:
    """One line for each preset: what it is, and whether its data is on this machine.

    Data that is there is read to find out, which may take a while the first time.
    """
    states: dict[str, str] = {}
    lines = []
    for preset in PRESETS.values():
        c = preset.config
        if c.data not in states:
            states[c.data] = _state(replace(c, data_dir=data_dir, images="stored"))
        what = f"{c.data} ({states[c.data]}), {c.model}, {c.cohort} of {c.clients} clients, {c.rounds} rounds"
        lines.append(f"  {preset.name:<31} {what}")
    return "presets (give one as --preset NAME; its data in brackets):\n" + "\n".join(lines)


def _state(config: Config) -> str:
    try:
        load_source(config.data, config)
    except DatasetNotFound:
        return "not on this machine"
    except DatasetCorrupt:
        return "damaged"
    except ImportError as error:
        return f"needs {error.name or 'a package'}"
    return "here"
