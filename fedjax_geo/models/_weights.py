"""Starts a model from trained weights in a local file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_geo.models._files import read_arrays
from fedjax_geo.types import Array, Variables

_SHOWN = 5  # problems of one kind in a message


class Names(NamedTuple):
    """How the arrays of a file belong to the leaves of a model.

    A leaf has a path such as ``params/fc/kernel`` or ``stats/norm/mean``.
    """

    find: Callable[[str], str | None]  # path of a leaf -> name in the file, or None to leave the leaf as it is
    convert: Callable[[str, np.ndarray], np.ndarray] = lambda path, array: array  # (path, array) -> for the leaf
    spare: Callable[[str], bool] = lambda name: False  # whether the file may hold this name for nothing


same_names = Names(lambda path: path)


def load_weights(variables: Variables, path: str | Path, names: Names = same_names) -> Variables:
    """Replaces parameters and statistics by those of a file.

    Nothing is guessed: every leaf that ``names`` finds must be in the file, of the same shape and floating
    point, and every array of the file must be used or spare.

    Args:
      variables: as the model's ``init`` made them.
      path: a local file, ``.safetensors`` or ``.npz``.
      names: ``torchvision_resnet()``, ``timm_vit()`` or one's own; if not given, the file has our paths.

    Returns:
      Variables of the same shapes and types.

    Raises:
      ValueError: if the file is of another kind or broken, or if names, shapes or types do not fit; the message
        lists them.
      OSError: if the file cannot be read.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "weights.npz"
    >>> np.savez(file, **{"params/w": np.ones(2, np.float32)})
    >>> load_weights(Variables({"w": jnp.zeros(2)}), file)
    Variables(params={'w': Array([1., 1.], dtype=float32)}, stats=())
    """
    arrays, used, problems = read_arrays(path), set(), _Problems()

    def load(key_path: tuple[Any, ...], leaf: Array) -> Array:
        at = jax.tree_util.keystr(key_path, simple=True, separator="/")
        name = names.find(at)
        if name is None:
            return leaf
        used.add(name)
        if name not in arrays:
            return problems.note("not in the file", f"{name} for {at}", leaf)
        array = names.convert(at, arrays[name])
        if array.shape != leaf.shape:
            found = f"{name} {list(array.shape)} for {at} {list(leaf.shape)}"
            return problems.note("of another shape", found, leaf)
        if not jnp.issubdtype(array.dtype, jnp.floating):
            return problems.note("not floating point", f"{name} {array.dtype}", leaf)
        return jnp.asarray(array, leaf.dtype)

    loaded = jax.tree_util.tree_map_with_path(load, variables._asdict())
    for name in arrays:
        if name not in used and not names.spare(name):
            problems.note("in the file without use", name, None)
    problems.say(path)
    return Variables(**loaded)


def torchvision_resnet(*, head: bool = False) -> Names:
    """Names of torchvision's ResNets, for ``imagenet_resnet`` of the same depth.

    Args:
      head: whether to load the last layer; if not, it stays as it is, for other classes.

    Returns:
      Names for ``load_weights``.
    """
    parts = {"kernel": "weight", "scale": "weight", "mean": "running_mean", "var": "running_var"}
    modules = {"shortcut_conv": "downsample.0", "shortcut_norm": "downsample.1"}

    def find(path: str) -> str | None:
        _, *module, part = path.split("/")
        if module == ["fc"] and not head:
            return None
        module = [f"{module[1]}1"] if module[:1] == ["stem"] else module
        module = [modules.get(name, name.replace("norm", "bn")) for name in module]
        return ".".join((*module, parts.get(part, part)))

    def spare(name: str) -> bool:
        return name.endswith("num_batches_tracked") or (name.startswith("fc.") and not head)

    return Names(find, from_torch, spare)


def timm_vit(*, head: bool = False) -> Names:
    """Names of timm's vision transformers, for ``vit`` of the same size on images of the same size.

    Args:
      head: whether to load the last layer; if not, it stays as it is, for other classes.

    Returns:
      Names for ``load_weights``.
    """
    parts = {"kernel": "weight", "scale": "weight"}
    modules = {
        "qkv": "attn.qkv",
        "proj": "attn.proj",
        "fc1": "mlp.fc1",
        "fc2": "mlp.fc2",
        "patch": "patch_embed.proj",
    }
    whole = {"class_token": "cls_token", "position": "pos_embed"}

    def find(path: str) -> str | None:
        _, *module, part = path.split("/")
        if module == ["head"] and not head:
            return None
        if not module:
            return whole.get(part, part)
        return ".".join((*(modules.get(name, name) for name in module), parts.get(part, part)))

    return Names(find, from_torch, lambda name: name.startswith("head.") and not head)


def from_torch(path: str, array: np.ndarray) -> np.ndarray:
    """Kernels from torch's order, [out, in, h, w] or [out, in], to [h, w, in, out] or [in, out]."""
    if not path.endswith("/kernel"):
        return array
    return array.transpose(2, 3, 1, 0) if array.ndim == 4 else array.T


class _Problems:
    """What does not fit, by kind."""

    def __init__(self) -> None:
        self.found: dict[str, list[str]] = {}

    def note(self, kind: str, what: str, leaf: Any) -> Any:
        self.found.setdefault(kind, []).append(what)
        return leaf

    def say(self, path: str | Path) -> None:
        if not self.found:
            return
        listed = (
            f"{kind}: {', '.join(some[:_SHOWN])}"
            + (f" and {len(some) - _SHOWN} more" if len(some) > _SHOWN else "")
            for kind, some in self.found.items()
        )
        raise ValueError(f"{path} does not fit the model; " + "; ".join(listed))
