"""Models, and adapters that make a ``Model`` of a flax module or of two functions."""

from fedjax_geo.models._cnn import CNN, cnn
from fedjax_geo.models._conv import Convolution, native, native_forward, patches, rows
from fedjax_geo.models._fedavg_cnn import FedAvgCNN, fedavg_cnn
from fedjax_geo.models._functions import from_functions
from fedjax_geo.models._lenet import LeNet5, lenet5
from fedjax_geo.models._linen import from_linen
from fedjax_geo.models._mlp import MLP, mlp
from fedjax_geo.models._nnx import from_nnx
from fedjax_geo.models._norms import BatchNorm, GroupNorm, Norm, batch_norm, group_norm
from fedjax_geo.models._pool import max_pool_2x2, max_pool_3x3
from fedjax_geo.models._precision import in_precision
from fedjax_geo.models._residual import ResNet
from fedjax_geo.models._resnet import imagenet_resnet, resnet18, resnet50
from fedjax_geo.models._resnet_cifar import resnet
from fedjax_geo.models._vit import ViT, vit, vit_b16, vit_blocks, vit_s16
from fedjax_geo.models._weights import Names, load_weights, same_names, timm_vit, torchvision_resnet

__all__ = [
    "CNN",
    "MLP",
    "BatchNorm",
    "Convolution",
    "FedAvgCNN",
    "GroupNorm",
    "LeNet5",
    "Names",
    "Norm",
    "ResNet",
    "ViT",
    "batch_norm",
    "cnn",
    "fedavg_cnn",
    "from_functions",
    "from_linen",
    "from_nnx",
    "group_norm",
    "imagenet_resnet",
    "in_precision",
    "lenet5",
    "load_weights",
    "max_pool_2x2",
    "max_pool_3x3",
    "mlp",
    "native",
    "native_forward",
    "patches",
    "resnet",
    "resnet18",
    "resnet50",
    "rows",
    "same_names",
    "timm_vit",
    "torchvision_resnet",
    "vit",
    "vit_b16",
    "vit_blocks",
    "vit_s16",
]
