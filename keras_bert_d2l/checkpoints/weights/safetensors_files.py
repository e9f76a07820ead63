"""Safetensors files: names, shapes and, one at a time, arrays out; whole files in.

The format (github.com/huggingface/safetensors, README) is the length of a header, the header in
JSON with name, dtype, shape and place of each array, and the numbers. The safetensors library
checks the header; the numbers are read from their place in the file, not mapped, so that memory
holds one array of the file at a time.
"""

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

_LENGTH_BYTES = 8  # of the number before the header
_STORED_AS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # NumPy has no bfloat16


class _Place(NamedTuple):
    """Where an array lies."""

    file: pathlib.Path
    offset: int
    dtype: str
    shape: tuple[int, ...]


class SafetensorsFiles:
    """The `Tensors` of one safetensors file, or of the several that a model is divided into.

    Args:
        files: The files; the order does not matter.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged (too short, or with a header that points outside the file or
            twice at the same numbers), or two files hold the same name.
    """

    def __init__(self, files: Sequence[pathlib.Path]) -> None:
        self.source = os.fspath(files[0] if len(files) == 1 else files[0].parent)
        self._places: dict[str, _Place] = {}
        for file in files:
            for name, place in _places(file).items():
                other = self._places.setdefault(name, place)
                if other is not place:
                    raise ValueError(
                        f"{os.fspath(other.file)!r} and {os.fspath(file)!r} both hold {name!r}, "
                        "which must be in one file: the files are of two different models."
                    )

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Returns the shapes of all arrays by name, without reading the arrays."""
        return {name: place.shape for name, place in self._places.items()}

    def dtypes(self) -> Mapping[str, str]:
        """Returns the dtypes of all arrays by name, as the format spells them: `"F32"`, `"I64"`."""
        return {name: place.dtype for name, place in self._places.items()}

    def read(self, name: str) -> np.ndarray:
        """Returns one array as float32.

        Raises:
            ValueError: It is stored as anything but F32, F16 or BF16.
        """
        place = self._places[name]
        if place.dtype not in _STORED_AS:
            raise ValueError(
                f"{os.fspath(place.file)!r}: weights must be F32, F16 or BF16. Received: {name!r} "
                f"in {place.dtype}; convert the file with the program that wrote it."
            )
        count = int(np.prod(place.shape))
        stored = np.fromfile(place.file, _STORED_AS[place.dtype], count, offset=place.offset)
        if stored.size != count:
            raise ValueError(
                f"{os.fspath(place.file)!r} became shorter while it was read: {name!r} has "
                f"{stored.size} of {count} numbers. Load it again when nothing writes it."
            )
        if place.dtype == "BF16":  # the upper half of a float32
            stored = (stored.astype(np.uint32) << 16).view(np.float32)
        return stored.astype(np.float32, copy=False).reshape(place.shape)


def write_safetensors(file: pathlib.Path, arrays: Mapping[str, np.ndarray], framework: str) -> None:
    """Writes a safetensors file.

    Args:
        file: The file, in a folder that nobody reads yet.
        arrays: Arrays by name.
        framework: Whose layout it is, for the header: `"pt"` (transformers asks for it) or
            `"keras"`.
    """
    # One key of metadata, as its order is not fixed: the same arrays give the same bytes.
    content = safetensors.numpy.save(dict(arrays), metadata={"format": framework})
    file.write_bytes(content)


def _places(file: pathlib.Path) -> dict[str, _Place]:
    """Returns the places of a file's arrays, after the safetensors library found them sound."""
    if not file.is_file():
        raise FileNotFoundError(f"There is no file {os.fspath(file)!r}.")
    try:
        with safetensors.safe_open(file, framework="numpy"):
            pass
    except safetensors.SafetensorError as error:
        raise ValueError(
            f"{os.fspath(file)!r} is no whole safetensors file: {error}. The file is damaged: "
            "copy it again, or save the model anew."
        ) from error
    with open(file, "rb") as opened:
        length = int.from_bytes(opened.read(_LENGTH_BYTES), "little")
        header = json.loads(opened.read(length))
    header.pop("__metadata__", None)
    start = _LENGTH_BYTES + length
    return {
        name: _Place(file, start + entry["data_offsets"][0], entry["dtype"], tuple(entry["shape"]))
        for name, entry in header.items()
    }
