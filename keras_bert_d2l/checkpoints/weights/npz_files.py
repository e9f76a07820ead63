"""Read NumPy npz files (zip archives of arrays), one array at a time."""

import contextlib
import os
import pathlib
import zipfile
import zlib
from collections.abc import Iterator

import numpy as np

from keras_bert_d2l.checkpoints.weights.arrays import NamedArrays


def open_npz(file: pathlib.Path) -> NamedArrays:
    """Open an npz file.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file is damaged.
    """
    if not file.is_file():
        raise FileNotFoundError(f"There is no file {os.fspath(file)!r}.")
    with _refusing_damage(file), zipfile.ZipFile(file) as archive:
        headers = {
            entry.removesuffix(".npy"): _header(archive, entry) for entry in archive.namelist()
        }

    def read(name: str) -> np.ndarray:
        dtype = headers[name][1]
        if dtype.kind != "f":
            raise ValueError(
                f"{os.fspath(file)!r}: weights must be floating-point numbers. Received: {name!r} "
                f"in {dtype}. If the file also contains other arrays, prefix the names of its "
                "weights with 'w/'."
            )
        return read_npz_array(file, name).astype(np.float32, copy=False)

    return NamedArrays(
        source=os.fspath(file),
        shapes={name: shape for name, (shape, _) in headers.items()},
        dtypes={name: dtype.name for name, (_, dtype) in headers.items()},
        read=read,
    )


def read_npz_array(file: pathlib.Path, name: str) -> np.ndarray:
    """Return an array in its stored dtype. Reject Python objects, which may run code.

    Raises:
        ValueError: The file is damaged or the array contains Python objects.
    """
    with _refusing_damage(file), np.load(file, allow_pickle=False) as stored:
        return stored[name]


@contextlib.contextmanager
def _refusing_damage(file: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{os.fspath(file)!r} is not a complete npz file of numeric arrays: {error}. Copy it "
            "again, or write it again with `numpy.savez(file, **arrays)`."
        ) from error


def _header(archive: zipfile.ZipFile, entry: str) -> tuple[tuple[int, ...], np.dtype]:
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        # Version 3 differs from 2 only in the encoding of field names, which numeric arrays lack.
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read(file)
    return shape, dtype
