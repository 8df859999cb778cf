"""Models, and adapters that make a ``Model`` of a flax module or of two functions."""

from fedjax_geo.models._cnn import CNN, cnn
from fedjax_geo.models._conv import Convolution, native, patches
from fedjax_geo.models._functions import from_functions
from fedjax_geo.models._linen import from_linen
from fedjax_geo.models._mlp import MLP, mlp
from fedjax_geo.models._nnx import from_nnx
from fedjax_geo.models._pool import max_pool_2x2

__all__ = [
    "CNN",
    "MLP",
    "Convolution",
    "cnn",
    "from_functions",
    "from_linen",
    "from_nnx",
    "max_pool_2x2",
    "mlp",
    "native",
    "patches",
]
