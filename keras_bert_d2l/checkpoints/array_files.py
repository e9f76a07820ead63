"""Files of named arrays, read one array at a time: safetensors and NumPy's npz.

A safetensors file contains the length of its header, a JSON header with the name, dtype, shape and
offsets of each array, and the values (github.com/huggingface/safetensors, README). The safetensors
library checks the header. The values are read at their offsets instead of being memory-mapped, so
only one array is in memory at a time; `torch_files.py`, `hdf5_files.py` and `tensorflow_files.py`
do the same.
"""

import dataclasses
import functools
import json
import math
import os
import pathlib
import weakref
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from keras_bert_d2l.checks import shown
from keras_bert_d2l.reading import DAMAGE, check_file, errors_naming, read_json_object


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
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def read_finite(self, name: str) -> np.ndarray:
        """Return an array, or raise a `ValueError` if one of its values is not finite."""
        value = self.read(name)
        if not np.isfinite(value).all():
            raise ValueError(
                f"{self.source!r} contains values that are not finite in {shown(name)}: the "
                "training run diverged, or the file is damaged. Use an earlier checkpoint."
            )
        return value

    def select(self, names: Mapping[str, str]) -> "NamedArrays":
        """Return a renamed subset of the arrays. `names` maps new names to existing names."""
        return NamedArrays(
            self.source,
            {new: self.shapes[old] for new, old in names.items()},
            {new: self.dtypes[old] for new, old in names.items()},
            lambda name: self.read(names[name]),
            self.metadata,
        )


_LENGTH_BYTES = 8  # size of the integer before the header
_MAX_HEADER_BYTES = 10_000_000  # BERT large needs 50,000
FLOATS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # NumPy has no bfloat16


def open_safetensors(files: Sequence[pathlib.Path]) -> NamedArrays:
    """Open one safetensors file, or all files of a sharded model, in any order.

    The files stay open, so the arrays belong together even if the files are replaced later.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged (truncated, or with offsets that overlap or lie outside the
            file), or two files contain the same name.
    """
    return together(files, [_SafetensorsFile(path) for path in files])


def write_safetensors(
    file: pathlib.Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]
) -> None:
    """Write a safetensors file to a folder that is not yet visible to readers.

    Args:
        file: The file.
        arrays: Arrays by name.
        metadata: Entries for the header, which are sorted by name.
    """
    written = memoryview(safetensors.numpy.save(dict(arrays), metadata=dict(metadata)))
    end = _LENGTH_BYTES + int.from_bytes(written[:_LENGTH_BYTES], "little")
    header = json.loads(bytes(written[_LENGTH_BYTES:end]))
    # The library writes the metadata in a random order: equal models would differ in their bytes.
    header["__metadata__"] = dict(sorted(metadata.items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust(math.ceil(len(text) / 8) * 8)  # the values are aligned to 8 bytes
    with file.open("wb") as stream:
        stream.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
        stream.write(written[end:])


def check(is_right: bool, problem: str) -> None:
    """Raise a `ValueError` unless `is_right`."""
    if not is_right:
        raise ValueError(problem)


def shard_files(index: pathlib.Path) -> list[pathlib.Path]:
    """Return the files in the index of a sharded model, in order.

    Raises:
        FileNotFoundError: The index does not exist.
        ValueError: It is damaged.
    """
    weight_map = read_json_object(index).get("weight_map")
    found = weight_map if isinstance(weight_map, dict) else {}
    names = {str(x) for one in found.values() for x in (one if isinstance(one, list) else [one])}
    others = sorted(name for name in names if pathlib.PurePath(name).name != name)
    if others or not names:  # a path could point outside the folder
        received = others[0] if others else weight_map
        raise ValueError(
            f'{os.fspath(index)!r} must have an object "weight_map" that maps weights to files in '
            f"its own folder. Received: {shown(received)}."
        )
    return [index.parent / name for name in sorted(names)]


class Place(NamedTuple):
    """Where an array is in a file.

    Attributes:
        dtype: The dtype, as spelled in safetensors files.
        shape: The shape.
        start: The position of the first value, in bytes.
        strides: The distances between neighbors along each axis, in values. `None` for rows that
            follow each other.
    """

    dtype: str
    shape: tuple[int, ...]
    start: int
    strides: tuple[int, ...] | None = None


class ArrayFile:
    """An open file whose arrays are read at their places.

    Attributes:
        path: The path of the file.
        places: The places of the arrays, by name, which a subclass must set.
        metadata: Other entries of the file.
    """

    places: Mapping[str, Place]
    metadata: Mapping[str, str] = {}

    def __init__(self, path: pathlib.Path) -> None:
        self.path = check_file(path)
        self._file: BinaryIO = open(path, "rb")  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        if self._file.read(100).startswith(b"version https://git-lfs"):
            raise ValueError(f"{os.fspath(path)!r} is a pointer of Git LFS. Run `git lfs pull`.")
        self._file.seek(0)
        self._size = os.fstat(self._file.fileno()).st_size

    def read(self, name: str) -> np.ndarray:
        """Return an array in float32."""
        dtype, shape, start, strides = self.places[name]
        if dtype not in FLOATS:
            raise ValueError(
                f"{os.fspath(self.path)!r}: weights must be F32, F16 or BF16. Received: {name!r} "
                f"in {dtype}. Convert the file with the program that wrote it."
            )
        self._file.seek(start)
        stored = np.fromfile(self._file, FLOATS[dtype], num_values(shape, strides))
        if dtype == "BF16":  # the upper half of a float32
            stored = (stored.astype(np.uint32) << 16).view(np.float32)
        if strides is None:
            return stored.astype(np.float32, copy=False).reshape(shape)
        in_bytes = [stride * stored.itemsize for stride in strides]
        view = np.lib.stride_tricks.as_strided(stored, shape, in_bytes, writeable=False)
        return view.astype(np.float32, order="C", copy=False)


def num_values(shape: Sequence[int], strides: Sequence[int] | None = None) -> int:
    """Return how many values there are from the first value of an array to the last one."""
    if strides is None or 0 in shape:
        return math.prod(shape)
    return 1 + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))


def together(paths: Sequence[pathlib.Path], files: Sequence[ArrayFile]) -> NamedArrays:
    """Return the arrays of one or more open files of a model.

    Raises:
        ValueError: Two files contain the same name.
    """
    owners: dict[str, ArrayFile] = {}
    metadata: dict[str, str] = {}
    for file in files:
        metadata |= file.metadata
        for name in file.places:
            other = owners.setdefault(name, file)
            if other is not file:
                raise ValueError(
                    f"{os.fspath(other.path)!r} and {os.fspath(file.path)!r} both contain "
                    f"{name!r}, which must be in one file only: the files belong to two different "
                    "models."
                )
    return NamedArrays(
        source=os.fspath(paths[0] if len(paths) == 1 else paths[0].parent),
        shapes={name: file.places[name].shape for name, file in owners.items()},
        dtypes={name: file.places[name].dtype for name, file in owners.items()},
        read=lambda name: owners[name].read(name),
        metadata=metadata,
    )


class _SafetensorsFile(ArrayFile):
    def __init__(self, path: pathlib.Path) -> None:
        super().__init__(path)
        length = int.from_bytes(self._file.read(_LENGTH_BYTES), "little")
        remedy = "The file is damaged: copy it again, or save the model again."
        errors = ValueError, safetensors.SafetensorError
        with errors_naming(path, " is not a complete safetensors file", remedy, errors):
            check(length <= _MAX_HEADER_BYTES, f"its header has {length:,} bytes")
            with safetensors.safe_open(path, framework="numpy"):
                pass
        header: dict[str, Any] = json.loads(self._file.read(length))
        self.metadata = header.pop("__metadata__", {})
        start = _LENGTH_BYTES + length
        self.places = {
            name: Place(x["dtype"], tuple(x["shape"]), start + x["data_offsets"][0])
            for name, x in header.items()
        }


_LARGEST_RATIO = 1032  # of the size of data to its size after DEFLATE (zlib.net/zlib_tech.html)


def open_npz(file: pathlib.Path) -> NamedArrays:
    """Open an npz file. It stays open, so the arrays belong together if it is replaced later.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: It is not a file, or is damaged.
    """
    check_file(file)
    remedy = "Copy it again, or write it again with `numpy.savez(file, **arrays)`."
    what = " is not a complete npz file of numeric arrays"
    refusing = functools.partial(errors_naming, file, what, remedy, DAMAGE)
    with refusing():
        archive = zipfile.ZipFile(file)
        entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        size = sum(entry.compress_size for entry in entries.values())
        check(size <= file.stat().st_size, "its arrays are larger than the file")
        headers = {name: _header(archive, entry) for name, entry in entries.items()}

    def read_stored(name: str) -> np.ndarray:
        with refusing(), archive.open(entries[name]) as stream:
            # Python objects are rejected, because reading them may run code.
            return np.lib.format.read_array(stream, allow_pickle=False)

    def read(name: str) -> np.ndarray:
        dtype = headers[name][1]
        if dtype.kind != "f":
            raise ValueError(
                f"{os.fspath(file)!r}: weights must be floating-point numbers. Received: "
                f"{shown(name)} in {dtype}. If the file also contains other arrays, prefix the "
                "names of its weights with 'w/'."
            )
        return read_stored(name).astype(np.float32, copy=False)

    return NamedArrays(
        source=os.fspath(file),
        shapes={name: shape for name, (shape, _) in headers.items()},
        dtypes={name: dtype.name for name, (_, dtype) in headers.items()},
        read=read,
        metadata={x: str(read_stored(x)) for x, (shape, _) in headers.items() if not shape},
    )


def _header(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> tuple[tuple[int, ...], np.dtype]:
    """Return the shape and the dtype of an array."""
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        # Version 3 differs from 2 only in the encoding of field names, which numeric arrays lack.
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read(file)
        size = file.tell() + math.prod(shape) * dtype.itemsize
    name, found = shown(entry.filename), entry.file_size
    check(dtype.hasobject or found == size, f"{name} has {found:,} bytes instead of {size:,}")
    check(found <= _LARGEST_RATIO * entry.compress_size, f"{name} cannot have {found:,} bytes")
    return shape, dtype
