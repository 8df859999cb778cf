"""How the experiments of both papers turn images into inputs, as values.

CRAFT: Wang, Liu and Thuerey, 2026, arXiv 2605.21317. FedVG: Devkota et al., 2026, arXiv 2602.21399. Sources are
scaled by the first group unless ``prepare`` says otherwise, and never augmented unless it does.
"""

from fedjax_geo.data._augment import crop_flip
from fedjax_geo.data._prepare import Scale, in_order, scale

CIFAR10_SCALE = scale(255, mean=[0.4914, 0.4822, 0.4465], std=[0.2470, 0.2435, 0.2616])
CIFAR100_SCALE = scale(255, mean=[0.5071, 0.4865, 0.4409], std=[0.2673, 0.2564, 0.2762])
FASHION_SCALE = scale(255, mean=[0.2860], std=[0.3530])
MNIST_SCALE = scale(255, mean=[0.1307], std=[0.3081])

CRAFT_CIFAR10_INPUTS = in_order(crop_flip(4), CIFAR10_SCALE)
CRAFT_CIFAR100_INPUTS = CIFAR100_SCALE
# Their FEMNIST is white paper under MNIST's constants, (1 - x - 0.1307) / 0.3081 where here ink is 1.
CRAFT_FEMNIST_INPUTS = Scale(255.0, mean=(1 - 0.1307,), std=(-0.3081,))

FEDVG_INPUTS = scale(255)  # [0, 1], for all data sets
