"""Read NumPy npz files (zip archives of arrays), one array at a time."""

import contextlib
import math
import os
import pathlib
import tokenize
import zipfile
import zlib
from collections.abc import Iterator

import numpy as np

from keras_bert_d2l.checkpoints.weights.arrays import NamedArrays
from keras_bert_d2l.reading import check_file

_DAMAGE = (
    *(ValueError, EOFError, RuntimeError, OSError),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError),
)
_MAX_ARRAYS = 100_000  # BERT large has 400
_LARGEST_RATIO = 1032  # of the size of data to its size after DEFLATE (zlib.net/zlib_tech.html)


def open_npz(file: pathlib.Path) -> NamedArrays:
    """Open an npz file. It stays open, so the arrays belong together if it is replaced later.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: It is not a file, or is damaged.
    """
    check_file(file)
    with _refusing_damage(file):
        archive = zipfile.ZipFile(file)
        entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        if len(entries) > _MAX_ARRAYS:
            raise ValueError(f"it has {len(entries):,} arrays")
        if sum(entry.compress_size for entry in entries.values()) > file.stat().st_size:
            raise ValueError("its arrays are larger than the file")
        headers = {name: _header(archive, entry) for name, entry in entries.items()}

    def read_stored(name: str) -> np.ndarray:
        with _refusing_damage(file), archive.open(entries[name]) as stream:
            # Python objects are rejected, because reading them may run code.
            return np.lib.format.read_array(stream, allow_pickle=False)

    def read(name: str) -> np.ndarray:
        dtype = headers[name][1]
        if dtype.kind != "f":
            raise ValueError(
                f"{os.fspath(file)!r}: weights must be floating-point numbers. Received: {name!r} "
                f"in {dtype}. If the file also contains other arrays, prefix the names of its "
                "weights with 'w/'."
            )
        return read_stored(name).astype(np.float32, copy=False)

    scalars = [name for name, (shape, _) in headers.items() if not shape]
    return NamedArrays(
        source=os.fspath(file),
        shapes={name: shape for name, (shape, _) in headers.items()},
        dtypes={name: dtype.name for name, (_, dtype) in headers.items()},
        read=read,
        metadata={name: str(read_stored(name)) for name in scalars},
    )


@contextlib.contextmanager
def _refusing_damage(file: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise ValueError(
            f"{os.fspath(file)!r} is not a complete npz file of numeric arrays: {error}. Copy it "
            "again, or write it again with `numpy.savez(file, **arrays)`."
        ) from error


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
    if not dtype.hasobject and entry.file_size != size:
        raise ValueError(f"{entry.filename!r} has {entry.file_size:,} bytes instead of {size:,}")
    if entry.file_size > _LARGEST_RATIO * entry.compress_size:
        raise ValueError(f"{entry.filename!r} cannot have {entry.file_size:,} bytes")
    return shape, dtype
