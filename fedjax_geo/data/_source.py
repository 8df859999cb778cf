"""What a loader hands over: one flat set of real examples and the facts about it."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedjax_geo.data._prepare import Scale
from fedjax_geo.types import Examples

IntArray = npt.NDArray[np.integer[Any]]


class DatasetNotFound(FileNotFoundError):
    """The files of a data set are in none of the places searched."""


class DatasetCorrupt(ValueError):
    """A file of a data set is not what it should be."""


@dataclass(frozen=True, eq=False)
class Source:
    """A data set before anybody federates it.

    Official test examples, where a set has them, come after the ``num_train`` training examples.
    """

    images: npt.NDArray[np.uint8]  # [N, height, width, channels]
    labels: npt.NDArray[np.int32]  # [N], in [0, num_classes)
    class_names: tuple[str, ...]
    prepare: Scale
    num_train: int  # official training examples, the first ones
    provenance: str  # where the data came from
    licence: str
    client_ids: npt.NDArray[np.int32] | None = None  # [N], whose example it is, where that is known
    client_names: tuple[str, ...] = ()  # by client id

    def __post_init__(self) -> None:
        """Check that the fields belong together.

        Raises:
            ValueError: arrays of different lengths, or a label or client id without a name.
        """
        n, ids = len(self.labels), self.client_ids
        if len(self.images) != n or (ids is not None and len(ids) != n):
            raise ValueError(f"images, labels and client_ids must be equally many, there are {n} labels")
        for what, values, names in (
            ("labels", self.labels, self.class_names),
            ("client_ids", ids, self.client_names),
        ):
            if values is not None and n and not (values.min() >= 0 and values.max() < len(names)):
                raise ValueError(f"{what} must be in [0, {len(names)}), got {values.min()} to {values.max()}")

    def __len__(self) -> int:
        """Examples, N."""
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        """Classes the labels are drawn from."""
        return len(self.class_names)

    def examples(self, positions: Any = slice(None)) -> Examples:
        """The examples at these positions, all unless given."""
        x: Any = self.images[positions]
        y: Any = self.labels[positions]
        return Examples(x, y)

    def official_train(self) -> "Source":
        """This set without its official test examples."""
        part = self.take(slice(self.num_train))
        return replace(part, provenance=f"{self.provenance}, official training part")

    def take(self, positions: Any) -> "Source":
        """The examples at these positions, ascending, and the same classes and clients."""
        return replace(
            self,
            images=self.images[positions],
            labels=self.labels[positions],
            num_train=int((np.arange(len(self))[positions] < self.num_train).sum()),
            client_ids=None if self.client_ids is None else self.client_ids[positions],
        )
