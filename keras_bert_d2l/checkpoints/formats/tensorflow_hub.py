"""Read the BERTs of TensorFlow Hub (`bert_en_*`, `bert_multi_*`, `small_bert/*`, `experts/*`).

They are SavedModels, as folders or `.tar.gz` files. A folder contains

- `saved_model.pb`: the graph, which is never loaded. Only the names of its operations are read,
  which tell the activation and whether texts are lowercased;
- `variables/variables.index` and `variables/variables.data-*`: a checkpoint of TensorFlow 2;
- `assets/vocab.txt`, in the encoders and in the preprocessing models.

A model of Keras 2 with a `hub.KerasLayer` is read in the same way, as a SavedModel, `.h5` or
`.keras` file: its encoder is loaded, and the layers around it are reported.

Source: github.com/tensorflow/models, official/nlp/tools/export_tfhub_lib.py, and
github.com/tensorflow/hub, tensorflow_hub/keras_layer.py.
"""

import dataclasses
import os
import pathlib
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from keras_bert_d2l.checkpoints.archives import TAR, Unpacked
from keras_bert_d2l.checkpoints.array_files import NamedArrays, check
from keras_bert_d2l.checkpoints.formats.checkpoint import Checkpoint
from keras_bert_d2l.checkpoints.formats.garden_names import (
    NAMES,
    bert_names,
    bert_sizes,
    with_merged_heads,
)
from keras_bert_d2l.checkpoints.hdf5_files import open_hdf5
from keras_bert_d2l.checkpoints.object_graphs import OBJECT_GRAPH, open_object_graph
from keras_bert_d2l.checkpoints.tensorflow_files import open_tf
from keras_bert_d2l.checkpoints.weights import TENSORFLOW_ENDINGS, Row, check_extent, expand
from keras_bert_d2l.checks import shown_names
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.reading import check_file, check_size, errors_naming, read_json_object
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.vocab import Vocab

MODEL_FILE, _PREFIX = "saved_model.pb", "variables/variables"
_CONFIG_FILE, _WEIGHTS_FILE = "config.json", "model.weights.h5"
_HDF5, _KERAS = (".h5", ".hdf5"), ".keras"
# A tar archive may have the files in a folder.
_IN_TAR = rf"(?:[^/]+/)?({re.escape(MODEL_FILE)}|{_PREFIX}\.[\w-]+|assets/[^/]+)"
_IN_KERAS = f"({re.escape(_CONFIG_FILE)}|{re.escape(_WEIGHTS_FILE)})"

# Field numbers that lead to the names of operations in saved_model.proto: those that TensorFlow
# lists, and without a list those of the functions and of the graph.
_OPERATIONS = ((2, 1, 2, 1, 1), (2, 2, 2, 1, 3, 2), (2, 2, 1, 2))
_MOST_BYTES = 2**26  # of the graph; a fine-tuned BERT large needs 35 MB
_ACTIVATIONS = {"Pow": "gelu_tanh", "Erf": "gelu", "Erfc": "gelu", "Relu": "relu"}
_LOWERCASE = "CaseFoldUTF8"
_FLOATS = ("F32", "F16", "BF16")
_LAYER = re.compile(r"(?:model_weights/|layers/)?([^/]+)")
_NUMBERED = re.compile(r"(layers/.+)/vars/(\d+)")
_NUM_AROUND, _NUM_IN_BLOCK = 7, 16  # variables of an encoder


class _Parts(NamedTuple):
    """The parts of a SavedModel or file. The folder is that of a SavedModel."""

    arrays: NamedArrays
    operations: Collection[str] = ()
    folder: pathlib.Path | None = None


def recognizes(path: pathlib.Path) -> bool:
    """Return whether a path looks like a SavedModel, or a file of Keras 2 with a Hub layer."""
    if path.is_dir():
        return os.path.lexists(path / MODEL_FILE)
    if path.suffix != _KERAS:
        return path.is_file() and path.name.endswith((*TAR, *_HDF5))
    try:
        unpacked = Unpacked(path, _IN_KERAS)
        return "'KerasLayer'" in str(read_json_object(unpacked.folder / _CONFIG_FILE))
    except (OSError, ValueError):
        return False


def describe(
    path: pathlib.Path, num_heads: int | None = None, *, tokenizer: bool = True
) -> Checkpoint:
    """Read everything except the weights.

    Args:
        path: The folder of a SavedModel, a `.tar.gz` file of one, or a file of Keras 2.
        num_heads: Not used. The shapes of the weights tell it.
        tokenizer: Whether to read the vocabulary.

    Raises:
        FileNotFoundError: The variables are missing.
        ValueError: A file is damaged, or the model is not a BERT.
    """
    stored, operations, folder = _parts(path)
    names = bert_names(stored)
    if not names:
        raise ValueError(
            f"{os.fspath(path)!r} has no BERT of TensorFlow Hub. Pass a preprocessing model to "
            "`load_tokenizer`, and instead of an export of this package the checkpoint that was "
            "exported."
        )
    arrays = stored.select(names)
    sizes = bert_sizes(arrays)
    with errors_naming(path):
        activation = _activation(operations)
        config = BERTConfig.preset("google", **sizes, activation=activation, next_sentence=False)
        vocab, options = _vocabulary(folder if tokenizer else None, operations)
    arrays = with_merged_heads(arrays, config)
    check_extent(config, arrays)
    others = stored.shapes.keys() - {*names.values()}
    layers = {found[1] for name in others if (found := _LAYER.match(name))}
    kind = "SavedModel" if folder else f"{path.suffix} file"
    unread = f" (not read: the layers {shown_names(sorted(layers))})" if layers else ""
    return Checkpoint(
        description=f"TensorFlow Hub, {kind}{unread}",
        config=config,
        table=table(config),
        arrays=arrays,
        vocab=vocab,
        tokenizer_options=options,
    )


def table(config: BERTConfig) -> list[Row]:
    """Return a row for each weight that TensorFlow Hub has; there is no next-sentence head."""
    return expand(config, NAMES, TENSORFLOW_ENDINGS)


def read_tokenizer(path: pathlib.Path) -> tuple[Vocab | None, TokenizerOptions]:
    """Read the vocabulary and the casing of an encoder or a preprocessing model.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged, or there are several vocabularies.
    """
    with errors_naming(path):
        if path.is_dir():
            return _vocabulary(path, _operations(path))
        if not path.name.endswith(TAR):
            return None, {}
        unpacked = Unpacked(path, _IN_TAR)
        return _vocabulary(unpacked.folder, _operations(unpacked.folder))


def _parts(path: pathlib.Path) -> _Parts:
    if path.suffix in _HDF5:
        arrays = _weights(open_hdf5([path]))
        return _Parts(arrays.select({name.removesuffix(":0"): name for name in arrays.shapes}))
    unpacked = (
        None if path.is_dir() else Unpacked(path, _IN_TAR if path.suffix != _KERAS else _IN_KERAS)
    )
    folder = unpacked.folder if unpacked else path
    try:
        with errors_naming(path):
            parts = _keras_file(folder) if path.suffix == _KERAS else _saved_model(folder)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{os.fspath(path)!r} is incomplete: {error}") from error

    def read(name: str, kept: Unpacked | None = unpacked) -> np.ndarray:
        with errors_naming(path):
            return parts.arrays.read(name)

    arrays = dataclasses.replace(parts.arrays, source=os.fspath(path), read=read)
    return parts._replace(arrays=arrays)


def _weights(arrays: NamedArrays) -> NamedArrays:
    """Return the arrays of an HDF5 file that are weights of layers."""
    return arrays.select(
        {
            name: name
            for name, dtype in arrays.dtypes.items()
            if dtype in _FLOATS and not name.startswith(("optimizer", "metrics"))
        }
    )


def _keras_file(folder: pathlib.Path) -> _Parts:
    return _Parts(_in_order(_weights(open_hdf5([folder / _WEIGHTS_FILE]))))


def _saved_model(folder: pathlib.Path) -> _Parts:
    if OBJECT_GRAPH not in open_tf(folder / _PREFIX).shapes:
        raise ValueError(
            "it is a module of TensorFlow Hub for TensorFlow 1. Download a SavedModel of the same "
            "model, such as version 4 of bert_en_uncased_L-12_H-768_A-12, or its checkpoint from "
            "github.com/google-research/bert."
        )
    return _Parts(open_object_graph(folder / _PREFIX), _operations(folder), folder)


def _in_order(arrays: NamedArrays) -> NamedArrays:
    """Name the variables of a Hub layer, which a `.keras` file stores in order, without names."""
    layers: dict[str, dict[int, str]] = {}
    for name in arrays.shapes:
        if found := _NUMBERED.fullmatch(name):
            layers.setdefault(found[1], {})[int(found[2])] = name
    names: dict[str, str] = {}
    for layer, variables in layers.items():
        stored = [variables[number] for number in sorted(variables)]
        num_blks, rest = divmod(len(stored) - _NUM_AROUND, _NUM_IN_BLOCK)
        ordered: Sequence[str] = stored
        if num_blks > 0 and not rest:
            word, segment, position, *others = _names_in_order(num_blks)
            ordered = [f"{layer}/{name}" for name in (word, position, segment, *others)]
        names |= zip(ordered, stored, strict=True)
    return arrays.select(names)


def _names_in_order(num_blks: int) -> list[str]:
    config = BERTConfig.preset("google", vocab_size=1, num_blks=num_blks)
    return [row.theirs for row in expand(config, NAMES, TENSORFLOW_ENDINGS, ("encoder", "hidden"))]


def _activation(operations: Collection[str]) -> str:
    """Return the activation of the blocks. Files without operations are from Google's models."""
    for operation, activation in _ACTIVATIONS.items():
        if operation in operations or not operations:
            return activation
    raise ValueError("it computes neither GELU nor ReLU, which BERT needs")


def _vocabulary(
    folder: pathlib.Path | None, operations: Collection[str]
) -> tuple[Vocab | None, TokenizerOptions]:
    """Return the vocabulary of a SavedModel, if it has one, and the options of the tokenizer."""
    if folder is None:
        return None, {}
    vocabs = {Vocab.from_file(file) for file in sorted(folder.glob("assets/*vocab*.txt"))}
    if len(vocabs) > 1:
        raise ValueError(
            f"it has {len(vocabs)} vocabularies in its assets. Remove all but that of the BERT."
        )
    lowercase = _lowercase(folder, operations)
    if not vocabs or lowercase is None:
        return None, {}
    return vocabs.pop(), {"lowercase": lowercase}


def _lowercase(folder: pathlib.Path, operations: Collection[str]) -> bool | None:
    """Return what the preprocessing does, or else the variable `do_lower_case` of the encoder."""
    if any("Wordpiece" in operation for operation in operations):
        return _LOWERCASE in operations
    stored = open_tf(folder / _PREFIX)
    flags = {bool(stored.read(name)) for name, dtype in stored.dtypes.items() if dtype == "bool"}
    return flags.pop() if len(flags) == 1 else None


def _operations(folder: pathlib.Path) -> Collection[str]:
    """Return the names of the operations of a SavedModel."""
    file = check_file(folder / MODEL_FILE)
    check_size(file, _MOST_BYTES)
    content = memoryview(file.read_bytes())
    with errors_naming(file, " is not a complete SavedModel"):
        for numbers in _OPERATIONS:
            if names := {bytes(name).decode() for name in _fields(content, *numbers)}:
                return names
        raise ValueError("it has no operations. Download it again.")


def _fields(message: memoryview, number: int, *numbers: int) -> Iterator[memoryview]:
    """Yield the texts or messages of some field numbers, from the outside in, in a message.

    Source: protobuf.dev/programming-guides/encoding
    """
    position = 0
    while position < len(message):
        key, position = _integer(message, position)
        kind = key & 7
        if kind == 0:
            _, position = _integer(message, position)
            continue
        check(kind in _SIZES or kind == 2, "it is damaged")
        size = _SIZES.get(kind, 0)
        if kind == 2:
            size, position = _integer(message, position)
        end = position + size
        check(end <= len(message), "it is truncated")
        if key == number << 3 | 2:
            field = message[position:end]
            yield from _fields(field, *numbers) if numbers else (field,)
        position = end


_SIZES = {1: 8, 5: 4}  # of numbers with a fixed size, by their kind


def _integer(message: memoryview, position: int) -> tuple[int, int]:
    """Return an integer of variable size, and the position behind it."""
    value = 0
    for shift in range(0, 64, 7):
        check(position < len(message), "it is truncated")
        byte = message[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise ValueError("it is damaged")
