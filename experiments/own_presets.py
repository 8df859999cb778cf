"""Experiments of our own. No paper has them, or numbers for them."""

from experiments.preset import Preset
from experiments.settings import Config

# CRAFT at its recipe's server rate, .1, that of its authors' CIFAR-10 demo; at 1 see docs/settling.md.
_COMMON = {"lr": 0.05, "decay": 0.999}


def own_presets() -> list[Preset]:
    """Experiments of ours on data that can be had without the internet; no paper has them."""
    return [
        Preset(
            config=Config(
                preset="geo/fashion-mnist-mlp",
                data="fashion_mnist",
                partition="dirichlet",
                min_examples=10,
                validation=0.02,
                rounds=100,
            ),
            common=_COMMON,
        ),
        Preset(
            config=Config(
                preset="geo/fashion-mnist-resnet20",
                data="fashion_mnist",
                images="rgb32",
                partition="craft",
                clients=1000,
                cohort=20,
                validation=0.0,
                model="resnet20",
                eval_every=25,
                seed=77,
            ),
            common=_COMMON,
            note="Grey images padded to 32 x 32 and repeated over three channels. FedVG needs --validation.",
        ),
        Preset(
            config=Config(
                preset="geo/emoji-resnet20",
                data="emoji_vendors",
                partition="within",
                alpha=0.5,
                min_examples=5,
                validation=0.05,
                model="resnet20",
                batch_size=10,
                epochs=2,
            ),
            common={"lr": 0.1, "decay": 0.999},
        ),
    ]
