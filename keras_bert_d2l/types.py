"""Type aliases shared by all subpackages."""

import os
from collections.abc import Callable
from typing import Any, TypeAlias, TypedDict

Tensor: TypeAlias = Any
"""A tensor of the Keras backend, a `keras.KerasTensor`, or a NumPy array.

Keras has no common type for these three. Docstrings state the shape and the dtype.
"""

Shape: TypeAlias = tuple[int | None, ...]
"""The static shape of a tensor. `None` marks a dimension that varies."""

PathLike: TypeAlias = str | os.PathLike[str]
"""A file system path."""


Option: TypeAlias = Any
"""The value of a keyword argument that is passed on, and checked where it arrives."""

Say: TypeAlias = Callable[[str], None]
"""A function that prints a message."""

ConfigDict: TypeAlias = dict[str, Any]
"""A JSON-serializable configuration, such as the result of `get_config`."""


class LayerOptions(TypedDict, total=False):
    """Keyword arguments that every Keras layer and model passes to its base class."""

    name: str | None
    dtype: Any  # a name such as "float32", a `keras.DTypePolicy`, or its config
    trainable: bool
