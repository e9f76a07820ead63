"""Checkpoints of TensorFlow: a table of entries, `.index`, and files with the values, `.data-*`.

TensorFlow reads the values and verifies their checksums. It ends the process if an entry is not
valid, and reserves as much memory as an entry asks for, so all entries are read and checked here
before it opens a file. So is the length of a text.

Source: tensorflow/core/protobuf/tensor_bundle.proto; github.com/google/leveldb,
doc/table_format.md.
"""

import contextlib
import errno
import io
import math
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import BinaryIO, NamedTuple

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto, BundleHeaderProto

from keras_bert_d2l.checkpoints.array_files import NamedArrays
from keras_bert_d2l.checks import shown
from keras_bert_d2l.reading import check_file

_MOST_BYTES = 2**22  # of an index or a text; BERT large with its optimizer needs 500,000
_MOST_NAME_BYTES = 2**24  # of all names together: each may begin like the one before
_MAGIC = bytes.fromhex("57fb808b247547db")
# Raised by TensorFlow's reader and by this one.
_UNREADABLE = (tf.errors.OpError, LookupError, ValueError, TypeError, DecodeError)


def open_tf(prefix: pathlib.Path) -> NamedArrays:
    """Open a checkpoint of TensorFlow by its prefix, the path without `.index`.

    In a checkpoint of TensorFlow 1, the names are those of the variables. `object_graphs.py` finds
    the names in those of TensorFlow 2.

    Raises:
        FileNotFoundError: There is no index.
        ValueError: The index is damaged, or does not fit the data files.
    """
    source = os.fspath(prefix)
    with _naming(prefix):
        entries = _entries(prefix)
        reader = tf.train.load_checkpoint(source)
        numbers = [name for name, entry in entries.items() if entry.dtype.is_floating]
        if numbers:  # TensorFlow opens the data file when it reads the first variable: do it now
            reader.get_tensor(min(numbers, key=lambda name: entries[name].size))

    def read(name: str) -> np.ndarray:
        with _naming(prefix, f", {shown(name)},"):
            return np.asarray(reader.get_tensor(name), dtype=np.float32)

    return NamedArrays(
        source,
        {name: entry.shape for name, entry in entries.items()},
        {name: entry.dtype.name for name, entry in entries.items()},
        read,
    )


@contextlib.contextmanager
def _naming(prefix: pathlib.Path, part: str = "") -> Iterator[None]:
    try:
        yield
    except _UNREADABLE as error:
        raise ValueError(
            f"The checkpoint {os.fspath(prefix)!r}{part} cannot be read: {error}. It is damaged or "
            "incomplete: copy it again."
        ) from error


def read_text(prefix: pathlib.Path, name: str) -> bytes:
    """Return a text of a checkpoint.

    Raises:
        ValueError: The checkpoint has no such text, or the text is damaged or large.
    """
    with _naming(prefix):
        entry = _entries(prefix).get(name)
        if entry is None or entry.dtype != tf.string or entry.shape or entry.size > _MOST_BYTES:
            raise ValueError(f"it has no text {name!r} of at most {_MOST_BYTES:,} bytes")
        with entry.file.open("rb") as data:  # the length, a checksum of 4 bytes, and the text
            data.seek(entry.offset)
            [length] = _integers(data, 1)
            if data.tell() + 4 + length != entry.offset + entry.size:
                raise ValueError(f"the text {name!r} does not have {length:,} bytes")
        text: bytes = tf.train.load_checkpoint(os.fspath(prefix)).get_tensor(name)
        return text


class _Entry(NamedTuple):
    dtype: tf.DType
    shape: tuple[int, ...]
    file: pathlib.Path
    offset: int
    size: int


def _entries(prefix: pathlib.Path) -> dict[str, _Entry]:
    """Read the index of a checkpoint, and compare it with the sizes of the data files."""
    path = check_file(f"{os.fspath(prefix)}.index")
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES:,} bytes")
    if content[-8:] != _MAGIC:
        raise ValueError("it does not end like a table")
    *_, start, size = _integers(io.BytesIO(content[-48:]), 4)
    found: dict[str, _Entry] = {}
    last, name_bytes, num_files = None, 0, 1
    for _, handle in _block(content, start, size):
        for key, value in _block(content, *_integers(io.BytesIO(handle), 2)):
            name_bytes += len(key)
            if (last is not None and key <= last) or name_bytes > _MOST_NAME_BYTES:
                raise ValueError(f"its names are not in order, or have {name_bytes:,} bytes")
            if key:
                found[key.decode()] = _entry(prefix, num_files, value)
            else:  # the first entry
                num_files = BundleHeaderProto.FromString(value).num_shards
            last = key
    return found


def _entry(prefix: pathlib.Path, num_files: int, value: bytes) -> _Entry:
    proto = BundleEntryProto.FromString(value)
    dtype, shape = tf.as_dtype(proto.dtype), tuple(dim.size for dim in proto.shape.dim)
    is_number = dtype.is_floating or dtype.is_integer or dtype.is_bool
    num_bytes = math.prod(shape) * (dtype.size if is_number else 1)
    is_right = num_bytes == proto.size if is_number else num_bytes <= proto.size
    is_usual = len(shape) < 9 and min(*shape, proto.offset, proto.size) >= 0
    if not is_right or not is_usual or proto.dtype > 100 or proto.shape.unknown_rank:
        raise ValueError(f"it has {shown(shape)} of {dtype.name} in {proto.size:,} bytes")
    if proto.slices:
        raise ValueError("a variable is split into slices")
    file = pathlib.Path(f"{os.fspath(prefix)}.data-{proto.shard_id:05d}-of-{num_files:05d}")
    if proto.offset + proto.size > check_file(file).stat().st_size:
        raise ValueError(f"{file.name!r} has no {proto.size:,} bytes at {proto.offset:,}")
    return _Entry(dtype, shape, file, proto.offset, proto.size)


def _block(content: bytes, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block of a table.

    It ends with the number of restarts and their places. Behind it is the kind of its compression,
    which TensorFlow does not use.
    """
    block, kind = content[start : start + size], content[start + size]
    end = size - 4 * (1 + int.from_bytes(block[-4:], "little"))
    if kind or not 0 <= end < size:
        raise ValueError("it has a block of another program")
    stream, key = io.BytesIO(block[:end]), b""
    while stream.tell() < end:
        shared, own, length = _integers(stream, 3)
        key = key[:shared] + stream.read(own)
        yield key, stream.read(length)


def _integers(stream: BinaryIO, number: int) -> list[int]:
    """Read integers with 7 bits per byte, the lowest first, and a mark in all but the last byte."""
    found = []
    for _ in range(number):
        value, shift, byte = 0, 0, 128
        while byte & 128:
            [byte] = stream.read(1)
            value |= (byte & 127) << shift
            shift += 7
            if shift > 70:
                raise ValueError("it has an integer of more than 64 bits")
        found.append(value)
    return found


def write_tf1(prefix: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a TF1 checkpoint. The same arrays always produce the same bytes."""
    names = sorted(arrays)
    try:
        with tf.device("CPU"):
            tf.raw_ops.SaveV2(
                prefix=os.fspath(prefix),
                tensor_names=names,
                shape_and_slices=[""] * len(names),  # complete arrays, not slices
                tensors=[arrays[name] for name in names],
            )
    except tf.errors.OpError as error:  # "... FILE; No space left on device [Op:SaveV2]"
        reason = error.message.rpartition("; ")[2].partition(" [Op:")[0]
        raise OSError(errno.EIO, reason) from error
