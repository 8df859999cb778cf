"""An experiment under a name: its settings, and what was published of it."""

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from experiments.settings import Config
from fedjax_geo import methods

Hyperparameters = Mapping[str, float]

# Settings that change how or where a run goes, or what chance makes of it, but not which experiment it is.
_INCIDENTAL = {
    "preset",
    "method",
    "data_dir",
    "download",
    "weights",
    "eval_every",
    "seed",
    "chunk",
    "devices",
    "auto",
    "out",
}


class Published(NamedTuple):
    """One number of a paper.

    Attributes:
        method: name of the recipe that is meant to reproduce it.
        mean: accuracy, in [0, 1]. CRAFT: mean over clients; FedVG: over all test examples, mean over seeds.
        where: it was read.
        error: of reading it; None where its line or marker is hidden behind others.
        std: population standard deviation over clients of their accuracies.
        bar: half the length of the error bar, over seeds.
        round: after which it was taken, as the paper counts; None: at the end.
        alpha: concentration of the Dirichlet partition; None where there is only one.
    """

    method: str
    mean: float
    where: str
    error: float | None
    std: float | None = None
    bar: float | None = None
    round: int | None = None
    alpha: float | None = None


@dataclass(frozen=True)
class Preset:
    """An experiment.

    Attributes:
        config: its settings; ``config.preset`` is its name.
        common: hyperparameters of every method.
        own: hyperparameters of single methods, by name of the recipe; the recipes' defaults for all others.
        ours: names of settings and hyperparameters that are our choice, since the paper does not give them.
        published: the paper's numbers, of all methods.
        metric: which of our numbers is to be held beside them.
        note: what else is not as in the paper.
    """

    config: Config
    common: Hyperparameters
    own: Mapping[str, Hyperparameters] = field(default_factory=dict)
    ours: tuple[str, ...] = ()
    published: tuple[Published, ...] = ()
    metric: str = "client_mean"
    note: str = ""

    @property
    def name(self) -> str:
        """What ``--preset`` takes."""
        return str(self.config.preset)

    def hyperparameters(self, method: str) -> dict[str, float]:
        """Those of a recipe that are not to be its defaults."""
        known = inspect.signature(methods.find(method)).parameters
        return {k: v for k, v in self.common.items() if k in known} | dict(self.own.get(method, {}))

    def numbers(self, method: str, config: Config) -> list[Published]:
        """What was published of a method at the alpha of a run."""
        return [p for p in self.published if p.method == method and p.alpha in (None, config.alpha)]

    def changed(self, config: Config) -> list[str]:
        """Settings of a run that make it another experiment, as ``name=value (preset: value)``."""
        pairs = (
            (f.name, getattr(config, f.name), getattr(self.config, f.name)) for f in dataclasses.fields(Config)
        )
        alphas = {p.alpha for p in self.published}
        return [
            f"{name}={now} (preset: {before})"
            for name, now, before in pairs
            if now != before and name not in _INCIDENTAL and not (name == "alpha" and now in alphas)
        ]
