"""The settings of an experiment, and the model and the layout that they ask for."""

import dataclasses
import functools
import os
from collections.abc import Callable
from pathlib import Path

import jax

from fedjax_geo import Strategy, Work, models, parallel
from fedjax_geo._validate import choose
from fedjax_geo.types import Model


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of a run. Hyperparameters of the method are options of their own, see below.

    Attributes:
        preset: start from the settings of a published experiment; ``--presets`` lists them.
        method: name of a recipe.
        data: name of a data set, looked for on this machine.
        data_dir: folder of the data set's files, if not in one of the usual places.
        download: let tensorflow-datasets download what is not found.
        images: stored, as the data set has them; rgb, grey repeated over three channels; rgb32, also with a border
            to 32 x 32 pixels.
        inputs: how pixels become inputs. stored: by the data set's constants; unit: scaled to [0, 1] only;
            crop-flip: cropped and mirrored at random in training, then by the constants; white-paper: FEMNIST as
            in CRAFT.
        partition: how examples become clients. natural: the data set's own clients; writers: so many of them,
            as in CRAFT; dirichlet: label skew, always feasible; within: the same inside each natural client;
            craft, craft-balanced, fedvg: the authors' schemes; classes, shards: few labels per client; quantity:
            sizes by Dirichlet; iid. Default natural, where there are natural clients, else dirichlet.
        alpha: concentration of the Dirichlet partitions.
        classes: labels per client, for the partitions classes and shards.
        min_examples: of each client, for the Dirichlet partitions; default as each of them has it.
        clients: number of clients, unless natural.
        test_fraction: of each client's examples; 0.2 unless the partition brings its own.
        validation: share of the examples that the server keeps as its validation set; 0 for none.
        pooled: take the validation set from every client's examples instead of before partitioning.
        surrogate: another data set in place of the validation set: stl10 or cifar100, for cifar10.
        tail: validate on a half of it in which each class is so much rarer than the one before.
        model: mlp, cnn, lenet5, fedavg_cnn, resnet20 (32, 44, 56, 110), resnet18, resnet50, imagenet_resnet18,
            imagenet_resnet50, vit_s16 or vit_b16.
        weights: file to start from, .safetensors or .npz: torchvision's for an imagenet_resnet, timm's for a vit.
        rounds: server updates.
        cohort: clients per round.
        batch_size: examples per local step.
        epochs: local passes over a client's examples per round.
        steps: local steps per round, instead of epochs.
        eval_every: rounds between evaluations on all clients.
        seed: of everything random.
        chunk: clients trained side by side; default chosen for the backend, 0 for the whole cohort.
        devices: devices that share the cohort; on a CPU, that many virtual ones. Default all there are, if the
            cohort is at least as large; a CPU counts as one unless asked for more.
        auto: compare a few layouts on this machine before the run and take the fastest, in place of chunk and
            devices; the answer is remembered.
        diagnose: how far the step is from each client's update, for which all updates of a round are held; a
            method that averages needs less memory and time without.
        stream: keep the examples and the clients' states in host memory and bring each round's cohort to the
            device, for what does not fit there.
        out: folder for the run's records.
    """

    preset: str | None = None
    method: str = "craft"
    data: str = "digits_forms"
    data_dir: Path | None = None
    download: bool = False
    images: str = "stored"
    inputs: str = "stored"
    partition: str | None = None
    alpha: float = 0.1
    classes: int = 2
    min_examples: int | None = None
    clients: int = 100
    test_fraction: float | None = None
    validation: float = 0.1
    pooled: bool = False
    surrogate: str | None = None
    tail: float | None = None
    model: str = "mlp"
    weights: Path | None = None
    rounds: int = 50
    cohort: int = 10
    batch_size: int = 20
    epochs: int = 1
    steps: int | None = None
    eval_every: int = 10
    seed: int = 0
    chunk: int | None = None
    devices: int | None = None
    auto: bool = False
    diagnose: bool = True
    stream: bool = False
    out: Path = Path("runs")

    @property
    def work(self) -> Work:
        """What a client does in a round."""
        return Work(self.batch_size, None if self.steps else self.epochs, self.steps)


MODELS: dict[str, Callable[[int], Model]] = {
    "mlp": models.mlp,
    "cnn": models.cnn,
    "lenet5": models.lenet5,
    "fedavg_cnn": models.fedavg_cnn,
    **{f"resnet{depth}": functools.partial(models.resnet, depth=depth) for depth in (20, 32, 44, 56, 110)},
    "resnet18": models.resnet18,
    "resnet50": models.resnet50,
    "imagenet_resnet18": functools.partial(models.imagenet_resnet, depth=18),
    "imagenet_resnet50": functools.partial(models.imagenet_resnet, depth=50),
    "vit_s16": models.vit_s16,
    "vit_b16": models.vit_b16,
}


def build_model(config: Config, num_classes: int) -> Model:
    """The model that a configuration asks for, with the weights it is to start from."""
    model = choose("model", MODELS, config.model)(num_classes)
    path = config.weights
    if path is None:
        return model
    names = models.timm_vit() if config.model.startswith("vit") else models.same_names
    if config.model.startswith("imagenet"):
        names = models.torchvision_resnet()
    return model._replace(init=lambda key, x: models.load_weights(model.init(key, x), path, names))


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def prepare_devices(config: Config) -> None:
    """Make the CPU devices that a configuration asks for; to be called before anything is computed.

    One for each core if the layout is to be chosen. A number that somebody else has set, such as the environment
    variable ``JAX_NUM_CPU_DEVICES``, stays if the configuration names none.

    Raises:
        ValueError: if the layout is to be chosen and is given, too, or the data is to be streamed, or the devices
            are less than one.
    """
    if config.auto and not (config.chunk is None and config.devices is None):
        raise ValueError("auto chooses the layout: leave out chunk and devices")
    if config.auto and config.stream:
        raise ValueError("auto compares layouts with all data on the device: leave out auto or stream")
    if config.devices is not None and config.devices < 1:
        raise ValueError(f"devices must be at least 1, got {config.devices}")
    wanted = config.devices
    already = jax.config.jax_num_cpu_devices  # type: ignore[attr-defined]  # -1: not set
    if wanted is None and already < 1 and config.auto:
        wanted = cores()
    if wanted is not None and wanted > 1:
        jax.config.update("jax_num_cpu_devices", wanted)


def layout(config: Config) -> Strategy:
    """The layout that a configuration asks for."""
    default = parallel.default_strategy()
    chunk = default.chunk if config.chunk is None else (config.chunk or None)
    there = len(jax.devices())
    devices = config.devices or (there if config.cohort >= there else 1)
    return Strategy(chunk, parallel.clients_mesh(devices) if devices > 1 else None)
