"""Checkpoints of TensorFlow: a table of entries, `.index`, and files with the values, `.data-*`.

TensorFlow reads the values and verifies their checksums. It ends the process if an entry is not
valid, and reserves as much memory as an entry asks for, so all entries are read and checked here
before it opens a file. So is the length of a text.

A checkpoint of `tf.train.Checkpoint` (TensorFlow 2) stores each variable under its path through
Python attributes, which depends on what was saved:
`model/layer_with_weights-0/_embedding_layer/embeddings/.ATTRIBUTES/VARIABLE_VALUE`. One more entry,
a serialized `TrackableObjectGraph`, has for each path the name of the variable in the program,
which depends only on its layers: `word_embeddings/embeddings`. These names are used here. The edges
of the graph are not followed.

Source: tensorflow/core/protobuf, tensor_bundle.proto and trackable_object_graph.proto;
github.com/google/leveldb, doc/table_format.md.
"""

import collections
import dataclasses
import io
import math
import os
import pathlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO, NamedTuple

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto, BundleHeaderProto
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from keras_bert_d2l.checkpoints.array_files import NamedArrays, check
from keras_bert_d2l.checkpoints.weights import first_few
from keras_bert_d2l.checks import shown
from keras_bert_d2l.reading import check_file, errors_naming

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # the name of a text
MOST_BYTES = 2**22  # of an index or that text; BERT large with its optimizer needs 500,000
_MOST_NAME_BYTES = 2**24  # of all names together: each may begin like the one before
_MAGIC = bytes.fromhex("57fb808b247547db")
_ENDING = "/.ATTRIBUTES/VARIABLE_VALUE"
# The path of a variable of an optimizer begins at the optimizer or at the weight it belongs to.
_OPTIMIZER = {"optimizer", ".OPTIMIZER_SLOT"}
_FLOATS = ("float32", "float16", "bfloat16", "float64")
# Raised by TensorFlow's reader and by this one.
_UNREADABLE = (tf.errors.OpError, LookupError, ValueError, TypeError, DecodeError)


def open_tf(prefix: pathlib.Path) -> NamedArrays:
    """Open a checkpoint of TensorFlow by its prefix, the path without `.index`.

    In a checkpoint of TensorFlow 1, the names are those of the variables. `variables_of` finds
    the names in those of TensorFlow 2, whose object graph is in the metadata.

    Raises:
        FileNotFoundError: There is no index.
        ValueError: The index is damaged, or does not fit the data files, or the variables are
            partitioned.
    """
    source = os.fspath(prefix)
    with _refusing(prefix):
        table = _table(_index(prefix))
    # TensorFlow encodes the names of the parts of a variable, unless they are saved one by one.
    is_whole = not any(x.startswith(b"\0") or x.endswith(b"/part_0") for x in table)
    check(is_whole, f"{source!r} has partitioned variables. Save it again without a partitioner.")
    with _refusing(prefix):
        entries = _entries(table, prefix)
        reader = tf.train.load_checkpoint(source)
        dtype, shape, size = entries.get(OBJECT_GRAPH, (None, None, 0))
        has_graph = dtype == tf.string and shape == () and size <= MOST_BYTES
        graph = {OBJECT_GRAPH: reader.get_tensor(OBJECT_GRAPH)} if has_graph else {}

    def read(name: str) -> np.ndarray:
        with _refusing(prefix, f", {shown(name)},"):
            return np.asarray(reader.get_tensor(name), dtype=np.float32)

    return NamedArrays(
        source,
        {name: entry.shape for name, entry in entries.items()},
        {name: entry.dtype.name for name, entry in entries.items()},
        read,
        graph,
    )


def has_object_graph(prefix: pathlib.Path) -> bool:
    """Return whether a checkpoint is one of TensorFlow 2, even if it is damaged."""
    return OBJECT_GRAPH.encode() in _index(prefix)


def _refusing(prefix: pathlib.Path, part: str = "") -> AbstractContextManager[None]:
    remedy = "It is damaged or incomplete: copy it again."
    return errors_naming(prefix, f"{part} cannot be read", remedy, _UNREADABLE)


class _Entry(NamedTuple):
    dtype: tf.DType
    shape: tuple[int, ...]
    size: int


def _index(prefix: pathlib.Path) -> bytes:
    with check_file(f"{os.fspath(prefix)}.index").open("rb") as file:
        return file.read(MOST_BYTES + 1)


def _table(content: bytes) -> dict[bytes, bytes]:
    """Return the keys and values of an index."""
    check(len(content) <= MOST_BYTES, f"it has more than {MOST_BYTES:,} bytes")
    check(content.endswith(_MAGIC), "it does not end like a table")
    *_, start, size = _integers(io.BytesIO(content[-48:]), 4)
    found: dict[bytes, bytes] = {}
    last, name_bytes = None, 0
    for _, handle in _block(content, start, size):
        for key, value in _block(content, *_integers(io.BytesIO(handle), 2)):
            name_bytes += len(key)
            is_right = (last is None or key > last) and name_bytes <= _MOST_NAME_BYTES
            check(is_right, f"its names are not in order, or have {name_bytes:,} bytes")
            found[key], last = value, key
    return found


def _entries(table: dict[bytes, bytes], prefix: pathlib.Path) -> dict[str, _Entry]:
    """Return the entries of an index, compared with the sizes of the data files."""
    num_files = BundleHeaderProto.FromString(table.pop(b"")).num_shards
    return {name.decode(): _entry(prefix, num_files, value) for name, value in table.items()}


def _entry(prefix: pathlib.Path, num_files: int, value: bytes) -> _Entry:
    proto = BundleEntryProto.FromString(value)
    dtype, shape = tf.as_dtype(proto.dtype), tuple(dim.size for dim in proto.shape.dim)
    is_number = dtype.is_floating or dtype.is_integer or dtype.is_bool
    num_bytes = math.prod(shape) * (dtype.size if is_number else 1)
    is_right = num_bytes == proto.size if is_number else num_bytes <= proto.size
    is_usual = len(shape) < 9 and min(*shape, proto.offset, proto.size) >= 0
    is_plain = proto.dtype <= 100 and not proto.shape.unknown_rank and not proto.slices
    problem = f"it has {shown(shape)} of {dtype.name} in {proto.size:,} bytes"
    check(is_right and is_usual and is_plain, problem)
    file = pathlib.Path(f"{os.fspath(prefix)}.data-{proto.shard_id:05d}-of-{num_files:05d}")
    is_inside = proto.offset + proto.size <= check_file(file).stat().st_size
    check(is_inside, f"{file.name!r} has no {proto.size:,} bytes at {proto.offset:,}")
    if dtype == tf.string and not shape:
        with file.open("rb") as data:  # the length, a checksum of 4 bytes, and the text
            data.seek(proto.offset)
            [length] = _integers(data, 1)
            is_right = data.tell() + 4 + length == proto.offset + proto.size
        check(is_right, f"a text does not have {length:,} bytes")
    return _Entry(dtype, shape, proto.size)


def _block(content: bytes, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block of a table.

    It ends with the number of restarts and their places. Behind it is the kind of its compression,
    which TensorFlow does not use.
    """
    block, kind = content[start : start + size], content[start + size]
    end = size - 4 * (1 + int.from_bytes(block[-4:], "little"))
    check(not kind and 0 <= end < size, "it has a block of another program")
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
            check(shift <= 70, "it has an integer of more than 64 bits")
        found.append(value)
    return found


def variables_of(stored: NamedArrays) -> NamedArrays:
    """Return the variables in a checkpoint of `tf.train.Checkpoint` that `open_tf` opened.

    They have the names that they had in the program. If several have the same name or none, they
    have their paths instead. The metadata have the path of each name and, as `OBJECT_GRAPH`, the
    names of all attributes. Variables of optimizers, counters and everything else that is not an
    array of floating-point numbers are left out.

    Raises:
        ValueError: The object graph is damaged or missing.
    """
    remedy = "Copy it again, or save it again with `tf.train.Checkpoint(model=model).write(path)`."
    what = " has no valid object graph of TensorFlow 2"
    with errors_naming(stored.source, what, remedy, (ValueError, DecodeError)):
        is_there = OBJECT_GRAPH in stored.metadata
        check(is_there, f"it has no text {OBJECT_GRAPH!r} of at most {MOST_BYTES:,} bytes")
        graph = TrackableObjectGraph.FromString(stored.metadata[OBJECT_GRAPH])
        names = _names(graph, stored)
    paths = {name: key.removesuffix(_ENDING) for name, key in names.items()}
    attributes = {edge.local_name for node in graph.nodes for edge in node.children}
    return dataclasses.replace(stored.select(names), metadata={**paths, OBJECT_GRAPH: attributes})


def _names(graph: TrackableObjectGraph, stored: NamedArrays) -> dict[str, str]:
    """Map the names of the variables to the keys under which the file stores them."""
    listed: dict[str, str] = {}
    for node in graph.nodes:
        for attribute in node.attributes:
            key = attribute.checkpoint_key
            if not key.endswith(_ENDING):  # a table or a text
                continue
            check(key in stored.shapes, f"it lists {shown(key)} without storing it")
            listed[key] = attribute.full_name
    unlisted = [key for key in stored.shapes if key.endswith(_ENDING) and key not in listed]
    check(not unlisted, f"it does not list {first_few(map(shown, unlisted))}")
    kept = {key: name for key, name in listed.items() if _is_weight(key, stored)}
    uses = collections.Counter(kept.values())
    names = {
        name if name and uses[name] == 1 else key.removesuffix(_ENDING): key
        for key, name in kept.items()
    }
    check(len(names) == len(kept), "the name of a variable is the path of another one")
    return names


def _is_weight(key: str, stored: NamedArrays) -> bool:
    is_float = stored.dtypes[key] in _FLOATS and stored.shapes[key]
    return bool(is_float) and _OPTIMIZER.isdisjoint(key.split("/"))
