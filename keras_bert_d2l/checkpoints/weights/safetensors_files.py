"""Read safetensors files one array at a time, and write them.

A file contains the length of its header, a JSON header with the name, dtype, shape and offsets of
each array, and the values (github.com/huggingface/safetensors, README). The safetensors library
checks the header. The values are read at their offsets instead of being memory-mapped, so only one
array is in memory at a time.
"""

import json
import math
import os
import pathlib
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
import safetensors
import safetensors.numpy

from keras_bert_d2l.checkpoints.weights.arrays import NamedArrays
from keras_bert_d2l.reading import check_file

_LENGTH_BYTES = 8  # size of the integer before the header
_MAX_HEADER_BYTES = 10_000_000  # BERT large needs 50,000
_STORED_AS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # NumPy has no bfloat16


def open_safetensors(files: Sequence[pathlib.Path]) -> NamedArrays:
    """Open one safetensors file, or all files of a sharded model, in any order.

    The files stay open, so the arrays belong together even if the files are replaced later.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged (truncated, or with offsets that overlap or lie outside the
            file), or two files contain the same name.
    """
    owners: dict[str, _File] = {}
    metadata: dict[str, str] = {}
    for path in files:
        file = _File(path)
        metadata |= file.header.pop("__metadata__", {})
        for name in file.header:
            other = owners.setdefault(name, file)
            if other is not file:
                raise ValueError(
                    f"{os.fspath(other.path)!r} and {os.fspath(path)!r} both contain {name!r}, "
                    "which must be in one file only: the files belong to two different models."
                )
    return NamedArrays(
        source=os.fspath(files[0] if len(files) == 1 else files[0].parent),
        shapes={name: tuple(file.header[name]["shape"]) for name, file in owners.items()},
        dtypes={name: file.header[name]["dtype"] for name, file in owners.items()},
        read=lambda name: owners[name].read(name),
        metadata=metadata,
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


class _File:
    """An open safetensors file.

    Attributes:
        path: The path of the file.
        header: The parsed header.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = check_file(path)
        self._file: BinaryIO = open(path, "rb", buffering=0)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._version = self._size_and_time()
        length = int.from_bytes(self._file.read(_LENGTH_BYTES), "little")
        if length > _MAX_HEADER_BYTES:
            raise self._damaged(f"its header has {length:,} bytes")
        try:
            with safetensors.safe_open(path, framework="numpy"):
                pass
        except safetensors.SafetensorError as error:
            raise self._damaged(f"{error!s:.200}") from error
        self.header: dict[str, Any] = json.loads(self._file.read(length))
        self._start = _LENGTH_BYTES + length

    def read(self, name: str) -> np.ndarray:
        """Return an array in float32."""
        entry = self.header[name]
        dtype, shape = entry["dtype"], entry["shape"]
        if dtype not in _STORED_AS:
            raise ValueError(
                f"{os.fspath(self.path)!r}: weights must be F32, F16 or BF16. Received: {name!r} "
                f"in {dtype}. Convert the file with the program that wrote it."
            )
        self._file.seek(self._start + entry["data_offsets"][0])
        stored = np.fromfile(self._file, _STORED_AS[dtype], math.prod(shape))
        if self._size_and_time() != self._version:
            raise ValueError(
                f"{os.fspath(self.path)!r} was changed while it was being read. Load it again when "
                "no program is writing to it."
            )
        if dtype == "BF16":  # the upper half of a float32
            stored = (stored.astype(np.uint32) << 16).view(np.float32)
        return stored.astype(np.float32, copy=False).reshape(shape)

    def _size_and_time(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns

    def _damaged(self, problem: str) -> ValueError:
        return ValueError(
            f"{os.fspath(self.path)!r} is not a complete safetensors file: {problem}. The file is "
            "damaged: copy it again, or save the model again."
        )
