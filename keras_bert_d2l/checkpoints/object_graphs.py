"""Checkpoints of `tf.train.Checkpoint` (TensorFlow 2) and the variables of SavedModels.

Such a checkpoint stores each variable under its path through Python attributes, which depends on
what was saved: `model/layer_with_weights-0/_embedding_layer/embeddings/.ATTRIBUTES/VARIABLE_VALUE`.
One more entry, a serialized `TrackableObjectGraph`, has for each path the name of the variable in
the program, which depends only on its layers: `word_embeddings/embeddings`. These names are used
here. The edges of the graph are not followed.

Source: tensorflow/core/protobuf/trackable_object_graph.proto.
"""

import collections
import dataclasses

from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from keras_bert_d2l.checkpoints.array_files import NamedArrays, check
from keras_bert_d2l.checkpoints.tensorflow_files import MOST_BYTES, OBJECT_GRAPH
from keras_bert_d2l.checkpoints.weights import first_few
from keras_bert_d2l.checks import shown
from keras_bert_d2l.reading import errors_naming

_ENDING = "/.ATTRIBUTES/VARIABLE_VALUE"
# The path of a variable of an optimizer begins at the optimizer or at the weight it belongs to.
_OPTIMIZER = {"optimizer", ".OPTIMIZER_SLOT"}
_MOST_NODES = 50_000  # BERT large with its optimizer needs 3,000
_FLOATS = ("float32", "float16", "bfloat16", "float64")


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
        check(len(graph.nodes) <= _MOST_NODES, f"it has {len(graph.nodes):,} nodes")
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
            check(key not in listed, f"it lists {shown(key)} twice")
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
