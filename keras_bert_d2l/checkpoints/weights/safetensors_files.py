"""Read safetensors files one array at a time, and write them.

A file contains the length of its header, a JSON header with the name, dtype, shape and offsets of
each array, and the values (github.com/huggingface/safetensors, README). The safetensors library
checks the header. The values are read at their offsets instead of being memory-mapped, so only one
array is in memory at a time.
"""

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from keras_bert_d2l.checkpoints.weights.arrays import NamedArrays

_LENGTH_BYTES = 8  # size of the integer before the header
_STORED_AS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # NumPy has no bfloat16


class _Entry(NamedTuple):
    """The location, dtype and shape of a stored array."""

    file: pathlib.Path
    offset: int
    dtype: str
    shape: tuple[int, ...]


def open_safetensors(files: Sequence[pathlib.Path]) -> NamedArrays:
    """Open one safetensors file, or all files of a sharded model, in any order.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged (truncated, or with offsets that overlap or lie outside the
            file), or two files contain the same name.
    """
    entries: dict[str, _Entry] = {}
    for file in files:
        for name, entry in _read_header(file).items():
            other = entries.setdefault(name, entry)
            if other is not entry:
                raise ValueError(
                    f"{os.fspath(other.file)!r} and {os.fspath(file)!r} both contain {name!r}, "
                    "which must be in one file only: the files belong to two different models."
                )
    return NamedArrays(
        source=os.fspath(files[0] if len(files) == 1 else files[0].parent),
        shapes={name: entry.shape for name, entry in entries.items()},
        dtypes={name: entry.dtype for name, entry in entries.items()},
        read=lambda name: _read(name, entries[name]),
    )


def write_safetensors(
    file: pathlib.Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]
) -> None:
    """Write a safetensors file to a folder that is not yet visible to readers.

    Args:
        file: The file.
        arrays: Arrays by name.
        metadata: Entries for the header. The order of multiple entries is unspecified.
    """
    file.write_bytes(safetensors.numpy.save(dict(arrays), metadata=dict(metadata)))


def _read_header(file: pathlib.Path) -> dict[str, _Entry]:
    if not file.is_file():
        raise FileNotFoundError(f"There is no file {os.fspath(file)!r}.")
    try:
        with safetensors.safe_open(file, framework="numpy"):
            pass
    except safetensors.SafetensorError as error:
        raise ValueError(
            f"{os.fspath(file)!r} is not a complete safetensors file: {error}. The file is "
            "damaged: copy it again, or save the model again."
        ) from error
    with open(file, "rb") as opened:
        length = int.from_bytes(opened.read(_LENGTH_BYTES), "little")
        header = json.loads(opened.read(length))
    header.pop("__metadata__", None)
    start = _LENGTH_BYTES + length
    return {
        name: _Entry(file, start + entry["data_offsets"][0], entry["dtype"], tuple(entry["shape"]))
        for name, entry in header.items()
    }


def _read(name: str, entry: _Entry) -> np.ndarray:
    if entry.dtype not in _STORED_AS:
        raise ValueError(
            f"{os.fspath(entry.file)!r}: weights must be F32, F16 or BF16. Received: {name!r} "
            f"in {entry.dtype}. Convert the file with the program that wrote it."
        )
    count = int(np.prod(entry.shape))
    stored = np.fromfile(entry.file, _STORED_AS[entry.dtype], count, offset=entry.offset)
    if stored.size != count:
        raise ValueError(
            f"{os.fspath(entry.file)!r} was truncated while it was being read: {name!r} has "
            f"{stored.size} of {count} values. Load it again when no program is writing to it."
        )
    if entry.dtype == "BF16":  # the upper half of a float32
        stored = (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32, copy=False).reshape(entry.shape)
