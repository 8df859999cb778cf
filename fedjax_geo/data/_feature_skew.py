"""Clients whose images look different, by a made-up shift: rotated, or of another contrast.

The pictures are real, the shift is not, and the provenance says so. Rotated groups: Ghosh, Chung, Yin and
Ramchandran, 2020, arXiv 2006.04088.

A source with such a shift is a source with natural clients, the groups; what is held out for the server, or cut
from the clients, is shifted as its group is. ``within_groups`` divides the groups further.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fedjax_geo.data._partition import by_group
from fedjax_geo.data._parts import ClientParts, Partition, describe
from fedjax_geo.data._source import Source

Images = npt.NDArray[np.uint8]
Shift = Callable[[Images, float], Images]  # (images [k, height, width, channels], largest pixel value)


@dataclass(frozen=True)
class Rotation:
    """A shift made by ``rotation``."""

    degrees: float

    def __call__(self, images: Images, top: float) -> Images:
        """Turn every image about its middle; bilinear, black outside."""
        del top
        height, width = images.shape[1:3]
        turn = np.deg2rad(self.degrees)
        cos, sin = round(np.cos(turn), 12), round(np.sin(turn), 12)
        y, x = np.mgrid[:height, :width] - np.array([height - 1, width - 1]).reshape(2, 1, 1) / 2
        row = cos * y + sin * x + (height - 1) / 2  # where each new pixel comes from, in the old image
        column = cos * x - sin * y + (width - 1) / 2
        above, left = np.floor(row).astype(int), np.floor(column).astype(int)
        turned = np.zeros(images.shape, np.float32)
        for r, c in ((above, left), (above, left + 1), (above + 1, left), (above + 1, left + 1)):
            weight = (1 - np.abs(row - r)) * (1 - np.abs(column - c))
            weight *= (r >= 0) & (r < height) & (c >= 0) & (c < width)
            corner = images[:, r.clip(0, height - 1), c.clip(0, width - 1)]
            turned += weight[..., None].astype(np.float32) * corner
        return np.rint(turned).astype(np.uint8)

    def __str__(self) -> str:
        """For names and the provenance."""
        return f"rotated by {self.degrees:g} degrees"


@dataclass(frozen=True)
class Contrast:
    """A shift made by ``contrast``."""

    factor: float

    def __call__(self, images: Images, top: float) -> Images:
        """Stretch every pixel's distance to the middle grey, within the range of pixels."""
        middle = top / 2
        levels = np.rint(np.clip(middle + self.factor * (np.arange(256) - middle), 0, top))
        return levels.astype(np.uint8)[images]

    def __str__(self) -> str:
        """For names and the provenance."""
        return f"of contrast {self.factor:g}"


def rotation(degrees: float) -> Rotation:
    """Images turned counterclockwise about their middle; a multiple of 90 degrees moves pixels of a square only.

    Raises:
        ValueError: the angle is not finite.
    """
    if not np.isfinite(degrees):
        raise ValueError(f"degrees must be finite, got {degrees}")
    return Rotation(float(degrees))


def contrast(factor: float) -> Contrast:
    """Images of more (above 1), less (below 1) or, if negative, inverted contrast.

    Raises:
        ValueError: the factor is not finite.
    """
    if not np.isfinite(factor):
        raise ValueError(f"factor must be finite, got {factor}")
    return Contrast(float(factor))


def feature_skew(
    source: Source, shifts: Sequence[Shift], partition: Partition | None = None, *, seed: int = 0
) -> Source:
    """A source whose groups of examples are each seen in another way.

    Args:
        source: the data set.
        shifts: one for each group, such as ``[rotation(angle) for angle in (0, 90, 180, 270)]``.
        partition: how examples are put into groups, such as ``iid``; None takes the natural clients.
        seed: of the partition.

    Returns:
        The same examples in the same order, shifted, with the groups as natural clients.

    Raises:
        ValueError: no natural clients and no partition, not one shift for each group, or a shift that changes
            the shape of images.

    >>> from fedjax_geo.data import federate, iid, load, within_groups
    >>> turned = feature_skew(load("digits_forms"), [rotation(0), rotation(180)], iid)
    >>> federate(turned, within_groups(iid), num_clients=6).client_names[2:4]
    ('rotated by 0 degrees, 2', 'rotated by 180 degrees, 0')
    """
    if partition is None:
        if source.client_ids is None:
            raise ValueError("the data set has no natural clients to shift; give a partition, such as iid")
        groups = by_group(source.client_ids)
        owners = [f"{source.client_names[source.client_ids[group[0]]]} " for group in groups]
        how = "natural clients"
    else:
        parts = partition(source.labels, len(shifts), seed=seed)
        if isinstance(parts, ClientParts):
            parts = [np.concatenate(pair) for pair in zip(parts.train, parts.test, strict=True)]
        groups, how = list(parts), f"groups by {describe(partition)}, seed {seed}"
        owners = [""] * len(groups)
    if len(groups) != len(shifts):
        raise ValueError(f"shifts must be as many as the {len(groups)} groups, got {len(shifts)}")
    if not np.array_equal(np.sort(np.concatenate(groups)), np.arange(len(source))):
        raise ValueError(f"partition must put each of the {len(source)} examples into one group")
    images = np.empty_like(source.images)
    ids = np.empty(len(source), np.int32)
    for number, (group, shift) in enumerate(zip(groups, shifts, strict=True)):
        images[group] = shift(source.images[group], source.prepare.divisor)
        ids[group] = number
    names = [f"{owner}{describe(shift)}" for owner, shift in zip(owners, shifts, strict=True)]
    kinds = list(dict.fromkeys(map(describe, shifts)))
    listed = ", ".join(kinds if len(kinds) <= 4 else [*kinds[:2], "...", kinds[-1]])
    return replace(
        source,
        images=images,
        client_ids=ids,
        client_names=tuple(names),
        provenance=f"{source.provenance}, synthetic feature shift of {len(groups)} {how}: {listed}",
    )
