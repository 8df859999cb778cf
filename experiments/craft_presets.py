"""The experiments of CRAFT (arXiv 2605.21317), and its numbers.

The numbers are from the logs of two demo runs in the authors' repository, and from the paper's figure of mean
accuracies, read off by calibrated axes. The tables of spread over clients were not at hand. The hyperparameters of
the methods that CRAFT is compared with are not public, so the recipes' own defaults stand for them here.
"""

from dataclasses import replace
from typing import Any

from experiments.preset import Preset, Published
from experiments.settings import Config

_DEMO, _FIGURE = "demo log", "figure, digitised"

_PANELS = (
    "femnist-mlp",
    "cifar10-resnet20",
    "cifar10-resnet56",
    "cifar10-resnet110",
    "cifar10-cnn",
    "cifar100-resnet20",
    "cifar100-resnet56",
    "cifar100-resnet110",
)

# After round 500; a question mark where the marker is largely hidden.
_FINAL = """
craft       .705   .805   .822   .818   .722   .397   .381   .363
fedavg      .570?  .360?  .362?  .317?  .635   .119?  .097?  .090
fedprox     .564   .355   .363?  .325?  .640?  .121   .097   .093?
fednova     .588   .380   .379   .328   .667   .124   .099?  .086
fedavgm     .654?  .462   .399?  .344?  .662   .212   .166   .141?
fedadagrad  .644   .426   .401   .361   .648   .178   .132   .120
fedadam     .636   .411   .375   .347   .621   .174   .123   .111
fedyogi     .639   .398   .367   .336   .606?  .172   .116   .078?
afl         .548   .293   .294   .249   .562   .067   .053   .044
fedfv       .488   .421   .415   .385   .640   .139   .120   .097
fedmgda     .385   .234   .249   .252   .410   .029   .011   .013
qfedavg     .554   .352   .349   .309   .586   .126   .098   .081
fedlf       .425   .501   .494   .468   .602   .205   .149   .141
config      .600   .525   .317   .185   .608   .208   .181   .072
"""

# CRAFT's own curve in the same figure, after the round in the first column.
_CURVE = """
50          .318   .305   .315   .310   .422   .153   .053   .029
100         .493   .578   .537   .523   .507   .254   .162   .147
200         .636   .701   .715   .696   .606   .340   .304   .292
300         .666   .761   .779   .762   .670   .379   .376   .348
400         .672   .791   .805   .794   .675   .389   .385   .365
"""

# Printed by the authors' program, seed 77: round, mean and standard deviation over clients.
_DEMOS = {
    "cifar10-resnet20": """
50   .333 .228
100  .564 .215
200  .701 .195
300  .750 .173
400  .782 .169
500  .806 .164
""",
    "cifar100-resnet20": """
50   .158 .112
100  .246 .134
200  .342 .152
300  .383 .153
400  .398 .152
500  .412 .157
""",
}


def _rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


def _published(panel: str) -> tuple[Published, ...]:
    column = 1 + _PANELS.index(panel)
    rows = [
        Published("craft", float(m), _DEMO, 0.0005, float(s), round=int(t))
        for t, m, s in _rows(_DEMOS.get(panel, ""))
    ]
    rows += [Published("craft", float(row[column]), _FIGURE, 0.002, round=int(row[0])) for row in _rows(_CURVE)]
    for row in _rows(_FINAL):
        hidden = row[column].endswith("?")
        mean = float(row[column].rstrip("?"))
        rows.append(Published(row[0], mean, _FIGURE, 0.01 if hidden else 0.002, round=500))
    return tuple(rows)


_COMMON = Config(
    method="craft",
    partition="craft",
    clients=1000,
    cohort=100,
    validation=0.0,
    rounds=501,  # the authors count from 0
    eval_every=25,
    seed=77,
)


def _craft(panel: str, lr: float, server_lr: float, ours: tuple[str, ...], **settings: Any) -> Preset:
    return Preset(
        config=replace(_COMMON, preset=f"craft/{panel}", model=panel.partition("-")[2], **settings),
        common={"lr": lr, "decay": 0.999},
        own={name: {"server_lr": server_lr} for name in ("craft", "craft_fedvg", "craft_ditto")},
        ours=ours,
        published=_published(panel),
        note="The client rate falls from the first round on, the authors' from the second.",
    )


def craft_presets() -> list[Preset]:
    """One for each panel of the paper's figure."""
    femnist = _craft(
        "femnist-mlp",
        lr=0.01,
        server_lr=0.1,
        ours=("clients", "cohort", "lr", "server_lr"),  # rates of the authors' default configuration
        data="femnist_parquet",
        partition="writers",
        inputs="white-paper",
    )
    # The rates are those of the demo runs, one for each data set, both with ResNet-20.
    cifar = {"cifar10": (0.005, 0.1, "crop-flip"), "cifar100": (0.05, 1.0, "stored")}
    panels = {
        "cifar10": ("resnet20", "resnet56", "resnet110", "cnn"),
        "cifar100": ("resnet20", "resnet56", "resnet110"),
    }
    return [femnist] + [
        _craft(
            f"{name}-{model}",
            lr,
            server_lr,
            () if model == "resnet20" else ("lr", "server_lr"),
            data=name,
            inputs=inputs,
        )
        for name, (lr, server_lr, inputs) in cifar.items()
        for model in panels[name]
    ]
