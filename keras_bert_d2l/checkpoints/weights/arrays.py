"""The arrays of a checkpoint: their names, shapes and dtypes, and a function that reads one."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np


@dataclasses.dataclass(frozen=True)
class NamedArrays:
    """The arrays of a checkpoint, read one at a time.

    Args:
        source: The file or folder, as error messages name it.
        shapes: Shapes by name.
        dtypes: Dtypes by name, as the file spells them.
        read: Function that returns the array of a name as float32.
    """

    source: str
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    read: Callable[[str], np.ndarray]

    def select(self, names: Mapping[str, str]) -> "NamedArrays":
        """Return some of the arrays, renamed. `names` maps new names to present ones."""
        return NamedArrays(
            self.source,
            {new: self.shapes[old] for new, old in names.items()},
            {new: self.dtypes[old] for new, old in names.items()},
            lambda name: self.read(names[name]),
        )
