"""The three models in PyTorch, layer by layer those of ``fedjax_geo.models``."""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Two 3 x 3 convolutions with group norm beside a padded shortcut."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        """Builds the layers."""
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(1, out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(1, out)
        self.stride, self.side = stride, (out - channels) // 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images [b, c, h, w] -> [b, out, h', w']."""
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        x = x[:, :, :: self.stride, :: self.stride]
        if self.side:
            x = F.pad(x, (0, 0, 0, 0, self.side, self.side))
        return F.relu(x + y)


def resnet20() -> nn.Module:
    """16, 32 and 64 channels, three blocks each."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.GroupNorm(1, 16), nn.ReLU()]
    channels = 16
    for out in (16, 32, 64):
        for i in range(3):
            layers.append(Block(channels, out, 2 if out > 16 and i == 0 else 1))
            channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def cnn() -> nn.Module:
    """The CNN of the CRAFT experiments on 28 x 28 x 1."""
    return nn.Sequential(
        nn.Conv2d(1, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1024, 384),
        nn.Dropout(0.2),
        nn.ReLU(),
        nn.Linear(384, 192),
        nn.Dropout(0.5),
        nn.ReLU(),
        nn.Linear(192, 10),
    )


def mlp() -> nn.Module:
    """Two hidden layers of 200."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)
    )


MODELS = {"mlp": mlp, "cnn": cnn, "resnet20": resnet20}
