"""The arrays of a checkpoint: names, shapes, dtypes, and a function to read one array."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np


@dataclasses.dataclass(frozen=True)
class NamedArrays:
    """The arrays of a checkpoint, read one at a time.

    Args:
        source: The file or folder, for error messages.
        shapes: Shapes by name.
        dtypes: Dtypes by name, as spelled in the file.
        read: Function that takes a name and returns the array as float32.
        metadata: Other entries of the file.
    """

    source: str
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    read: Callable[[str], np.ndarray]
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def read_finite(self, name: str) -> np.ndarray:
        """Return an array, or raise a `ValueError` if one of its values is not finite."""
        value = self.read(name)
        if not np.isfinite(value).all():
            raise ValueError(
                f"{self.source!r} contains values that are not finite in {name!r}: the training "
                "run diverged, or the file is damaged. Use an earlier checkpoint."
            )
        return value

    def select(self, names: Mapping[str, str]) -> "NamedArrays":
        """Return a renamed subset of the arrays. `names` maps new names to existing names."""
        return NamedArrays(
            self.source,
            {new: self.shapes[old] for new, old in names.items()},
            {new: self.dtypes[old] for new, old in names.items()},
            lambda name: self.read(names[name]),
        )
