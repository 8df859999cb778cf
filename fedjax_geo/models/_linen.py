"""Adapter from flax Linen to ``Model``."""

from typing import Any

import flax
from flax import linen

from fedjax_geo.models._calls import accepted, floating, some_valid
from fedjax_geo.types import Array, Key, Model, PyTree, Variables


def from_linen(module: linen.Module) -> Model:
    """Makes a model of a flax Linen module.

    Parameters are its collection ``params``, statistics ``batch_stats``. The module is passed a random stream
    ``dropout`` and those of ``train``, ``deterministic``, ``use_running_average`` and ``mask`` (bool [b],
    never all False) that it takes.

    Args:
      module: takes inputs [b, ...] and returns logits [b, c].

    Returns:
      A model.

    Raises:
      ValueError: in use, if a parameter is not floating point or if the module has other collections.

    >>> import jax
    >>> model = from_linen(linen.Dense(10))
    >>> jax.tree.map(jax.numpy.shape, model.init(jax.random.key(0), jax.numpy.ones((1, 4)))).params
    {'bias': (10,), 'kernel': (4, 10)}
    """

    def options(train: bool, mask: Array | None) -> dict[str, Any]:
        mode = {"train": train, "deterministic": not train, "use_running_average": not train}
        return accepted(module.__call__, {**mode, "mask": some_valid(mask)})

    def init(key: Key, x: Array) -> Variables:
        found = flax.core.unfreeze(module.init(key, x, **options(train=False, mask=None)))
        params, stats = found.pop("params", {}), found.pop("batch_stats", ())
        if found:
            raise ValueError(f"only collections 'params' and 'batch_stats' are supported, got {sorted(found)}")
        return Variables(floating(params), stats)

    def apply(
        variables: Variables, x: Array, *, train: bool, key: Key | None = None, mask: Array | None = None
    ) -> tuple[Array, PyTree]:
        collections = {"params": variables.params, "batch_stats": variables.stats or {}}
        rngs = None if key is None else {"dropout": key}
        mutable = ["batch_stats"] if train else []
        logits, changed = module.apply(collections, x, **options(train, mask), rngs=rngs, mutable=mutable)
        return logits, flax.core.unfreeze(changed).get("batch_stats") or variables.stats

    return Model(init, apply)
