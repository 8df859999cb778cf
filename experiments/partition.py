"""What a partition looks like: its numbers, and a picture of who holds how much of what.

python -m experiments.partition --partition dirichlet --alpha 0.1 --clients 20 --out partition.png
python -m experiments.partition --data fashion_mnist --partition classes --classes 3 --clients 50
"""

import dataclasses
import sys
from pathlib import Path

import matplotlib
import numpy as np
import tyro

from experiments import settings
from experiments.datasets import load, load_source
from fedjax_geo import data
from fedjax_geo.types import FederatedData

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

_FEW = 60  # clients that can be told apart as bubbles
_NAMED = 30  # classes, or clients, whose names fit beside an axis


@dataclasses.dataclass(frozen=True)
class Config:
    """Which federation to look at; see ``experiments.run`` for what can be chosen.

    Attributes:
        data: name of a data set, looked for on this machine.
        data_dir: folder of the data set's files, if not in one of the usual places.
        partition: how examples become clients. Default natural, where there are natural clients, else dirichlet.
        alpha: concentration of the Dirichlet partitions.
        classes: labels per client, for the partitions classes and shards.
        min_examples: of each client, for the Dirichlet partitions; default as each of them has it.
        clients: number of clients, unless natural.
        test_fraction: of each client's examples; 0.2 unless the partition brings its own.
        validation: share of the examples that the server keeps as its validation set; 0 for none.
        pooled: take the validation set from every client's examples instead of before partitioning.
        seed: of everything random.
        out: the picture.
    """

    data: str = "digits_forms"
    data_dir: Path | None = None
    partition: str | None = None
    alpha: float = 0.1
    classes: int = 2
    min_examples: int | None = None
    clients: int = 20
    test_fraction: float | None = None
    validation: float = 0.0
    pooled: bool = False
    seed: int = 0
    out: Path = Path("partition.png")


def _bubbles(axes: Axes, counts: np.ndarray) -> None:
    """A circle for each client and class; its area is the number of examples, the largest just fits its cell."""
    clients, labels = np.nonzero(counts)
    box = axes.get_window_extent()
    cell = min(box.width / counts.shape[0], box.height / counts.shape[1]) * 72 / axes.figure.dpi  # points
    axes.scatter(clients, labels, s=(0.95 * cell) ** 2 * counts[clients, labels] / counts.max(), linewidths=0)
    axes.set(xlim=(-0.5, counts.shape[0] - 0.5), ylim=(-0.5, counts.shape[1] - 0.5), ylabel="class")
    axes.grid(alpha=0.2)


def _bars(axes: Axes, counts: np.ndarray) -> None:
    """A bar for each client, the largest first, with a stripe for each class."""
    colours = plt.get_cmap("turbo")(np.linspace(0.05, 0.95, counts.shape[1]))
    tops = np.cumsum(counts, axis=1)
    for label in reversed(range(counts.shape[1])):
        axes.fill_between(
            np.arange(len(tops) + 1), np.append(tops[:, label], 0), step="post", color=colours[label]
        )
    axes.set(xlim=(0, len(tops)), ylim=(0, None), ylabel="examples, a colour for each class")


def save_figure(federation: FederatedData, class_names: tuple[str, ...], title: str, path: Path) -> Path:
    """Draw who holds how much of what, training and test examples together.

    Bubbles for up to 60 clients, in their order; for more of them stacked bars, the largest client first.
    """
    counts = data.label_counts(federation)
    n, num_classes = counts.shape
    figure, axes = plt.subplots(figsize=(max(6.0, min(14.0, 2 + 0.35 * n)), 5), layout="constrained")
    few = n <= _FEW and num_classes <= 2 * _FEW
    if few and num_classes <= _NAMED:
        axes.set_yticks(range(num_classes), class_names)
    if few and n <= _NAMED:
        names = [name.removeprefix("client ") for name in federation.client_names]
        axes.set_xticks(range(n), names, rotation=90 if max(map(len, names)) > 2 else 0)
    axes.set(xlabel="client" if few else "clients, by size")
    axes.set_title(title, fontsize="medium", loc="left")
    if few:
        figure.draw_without_rendering()  # the layout decides how large a circle may be
        _bubbles(axes, counts)
    else:
        _bars(axes, counts[np.argsort(-counts.sum(1), kind="stable")])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def main(config: Config) -> None:
    """Make the federation, describe it, draw it."""
    chosen = settings.Config(**{name: value for name, value in vars(config).items() if name != "out"})
    federation = load(chosen)
    names = load_source(config.data, chosen).class_names
    print(f"{federation.provenance}\n{data.summarize(federation)}")
    title = federation.provenance.replace("; ", "\n")
    print(f"picture in {save_figure(federation, names, title, config.out)}")


if __name__ == "__main__":
    try:
        main(tyro.cli(Config))
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"error: {error}")
