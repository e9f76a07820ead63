"""Checkpoints of `tf.train.Checkpoint` (TensorFlow 2) and the variables of SavedModels.

Such a checkpoint stores each variable under its path through Python attributes, which depends on
what was saved: `model/layer_with_weights-0/_embedding_layer/embeddings/.ATTRIBUTES/VARIABLE_VALUE`.
One more entry, a serialized `TrackableObjectGraph`, has for each path the name of the variable in
the program, which depends only on its layers: `word_embeddings/embeddings`. These names are used
here. The edges of the graph are not followed.

Source: tensorflow/core/protobuf/trackable_object_graph.proto.
"""

import collections
import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Iterator

from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from keras_bert_d2l.checkpoints.array_files import NamedArrays
from keras_bert_d2l.checkpoints.tensorflow_files import open_tf, read_text
from keras_bert_d2l.checkpoints.weights import first_few
from keras_bert_d2l.checks import shown

OBJECT_GRAPH, _ENDING = "_CHECKPOINTABLE_OBJECT_GRAPH", "/.ATTRIBUTES/VARIABLE_VALUE"
# The path of a variable of an optimizer begins at the optimizer or at the weight it belongs to.
_OPTIMIZER = {"optimizer", ".OPTIMIZER_SLOT"}
_MOST_NODES = 50_000  # BERT large with its optimizer needs 3,000
_FLOATS = ("float32", "float16", "bfloat16", "float64")


def open_object_graph(prefix: pathlib.Path) -> NamedArrays:
    """Open a checkpoint of `tf.train.Checkpoint` by its prefix, the path without `.index`.

    The arrays have the names that the variables had in the program. If several have the same name
    or none, they have their paths instead. The metadata have the path of each name. Variables of
    optimizers, counters and everything else that is not an array of floating-point numbers are left
    out.

    Raises:
        ValueError: A file is damaged, or the checkpoint is one of TensorFlow 1.
    """
    stored = open_tf(prefix)
    graph = _read_graph(prefix)
    with _naming(prefix):
        names = _names(graph, stored)
    paths = {name: key.removesuffix(_ENDING) for name, key in names.items()}
    return dataclasses.replace(stored.select(names), metadata=paths)


def attributes_of(prefix: pathlib.Path) -> set[str]:
    """Return the names of all attributes in the object graph of a checkpoint."""
    return {edge.local_name for node in _read_graph(prefix).nodes for edge in node.children}


@contextlib.contextmanager
def _naming(prefix: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, DecodeError) as error:
        raise ValueError(
            f"The checkpoint {os.fspath(prefix)!r} has no valid object graph of TensorFlow 2: "
            f"{error}. Copy it again, or save it again with "
            "`tf.train.Checkpoint(model=model).write(path)`."
        ) from error


def _read_graph(prefix: pathlib.Path) -> TrackableObjectGraph:
    text = read_text(prefix, OBJECT_GRAPH)
    with _naming(prefix):
        graph = TrackableObjectGraph.FromString(text)
        if len(graph.nodes) > _MOST_NODES:
            raise ValueError(f"it has {len(graph.nodes):,} nodes")
    return graph


def _names(graph: TrackableObjectGraph, stored: NamedArrays) -> dict[str, str]:
    """Map the names of the variables to the keys under which the file stores them."""
    listed: dict[str, str] = {}
    for node in graph.nodes:
        for attribute in node.attributes:
            key = attribute.checkpoint_key
            if not key.endswith(_ENDING):  # a table or a text
                continue
            if key in listed or key not in stored.shapes:
                problem = "twice" if key in listed else "without storing it"
                raise ValueError(f"it lists {shown(key)} {problem}")
            listed[key] = attribute.full_name
    unlisted = [key for key in stored.shapes if key.endswith(_ENDING) and key not in listed]
    if unlisted:
        raise ValueError(f"it does not list {first_few(map(shown, unlisted))}")
    kept = {key: name for key, name in listed.items() if _is_weight(key, stored)}
    uses = collections.Counter(kept.values())
    names = {
        name if name and uses[name] == 1 else key.removesuffix(_ENDING): key
        for key, name in kept.items()
    }
    if len(names) < len(kept):
        raise ValueError("the name of a variable is the path of another one")
    return names


def _is_weight(key: str, stored: NamedArrays) -> bool:
    is_float = stored.dtypes[key] in _FLOATS and stored.shapes[key]
    return bool(is_float) and _OPTIMIZER.isdisjoint(key.split("/"))
