"""Validation sets that are smaller, lopsided or noisy: how much does the server's set matter?

Devkota et al., 2026, arXiv 2602.21399 (FedVG), compare such sets; each is made once, before the run.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedjax_geo import _validate
from fedjax_geo.data._source import Source
from fedjax_geo.data._validation import Validation, pick, stratified
from fedjax_geo.types import Examples


@dataclass(frozen=True)
class _Subsampled:
    fraction: float

    def __call__(self, examples: Examples, source: Source, rng: np.random.Generator) -> Examples:
        kept = stratified(np.asarray(examples.y), self.fraction, rng)
        return Examples(examples.x[kept], examples.y[kept])

    def __str__(self) -> str:
        return f"{self.fraction:g} of it"


@dataclass(frozen=True)
class _LongTailed:
    ratio: float
    fraction: float

    def __call__(self, examples: Examples, source: Source, rng: np.random.Generator) -> Examples:
        share = self.ratio ** np.arange(source.num_classes)
        total = int(self.fraction * len(examples.y))
        take = np.floor(total * share / share.sum()).astype(np.int64)
        kept = pick(np.asarray(examples.y), take, rng)
        return Examples(examples.x[kept], examples.y[kept])

    def __str__(self) -> str:
        return f"{self.fraction:g} of it with classes in proportion to {self.ratio:g}^c"


@dataclass(frozen=True)
class _Noisy:
    std: float

    def __call__(self, examples: Examples, source: Source, rng: np.random.Generator) -> Examples:
        top = source.prepare.divisor
        noise = rng.normal(0, self.std * top, examples.x.shape)
        return Examples(np.rint(np.clip(examples.x + noise, 0, top)).astype(np.uint8), examples.y)

    def __str__(self) -> str:
        return f"with noise of std {self.std:g}"


def subsampled(validation: Validation, fraction: float) -> Validation:
    """A fraction of a validation set, every class in proportion; 0.3 in FedVG's code.

    Raises:
        ValueError: a fraction outside [0, 1).
    """
    return _then(validation, _Subsampled(_validate.fraction("fraction", fraction)))


def long_tailed(validation: Validation, ratio: float, *, fraction: float = 0.5) -> Validation:
    """A validation set in which class c is as frequent as ``ratio ** c``, as far as there are examples.

    Args:
        validation: what it is made of.
        ratio: between one class and the one before; FedVG's rho, 1 for equal shares.
        fraction: of the whole, asked for. There are fewer where the first classes run out.

    Raises:
        ValueError: a ratio or fraction that is not above 0 and at most 1.

    >>> from fedjax_geo.data import load_federated, pooled_clients
    >>> data = load_federated("digits_forms", validation=long_tailed(pooled_clients(0.5), 0.5))
    >>> np.bincount(data.validation.y).tolist()
    [100, 91, 56, 28, 14, 7, 3, 1]
    """
    for name, value in (("ratio", ratio), ("fraction", fraction)):
        if not 0 < value <= 1:
            raise ValueError(f"{name} must be above 0 and at most 1, got {value}")
    return _then(validation, _LongTailed(ratio, fraction))


def noisy(validation: Validation, std: float) -> Validation:
    """A validation set with Gaussian noise on every pixel, rounded and kept within the range of pixels.

    Args:
        validation: what it is made of.
        std: of the noise, for pixels from 0 to 1.

    Raises:
        ValueError: a std that is negative or not finite.
    """
    return _then(validation, _Noisy(_validate.non_negative("std", std)))


def _then(validation: Validation, change: _Subsampled | _LongTailed | _Noisy) -> Validation:
    return replace(validation, changes=(*validation.changes, change))
