"""How a client trains."""

from fedjax_geo.clients._local import LocalResult, local_steps
from fedjax_geo.clients._local_sgd import local_sgd

__all__ = ["LocalResult", "local_sgd", "local_steps"]
