"""Audit of a SavedModel for operations that TensorFlow Serving does not support.

TensorFlow Serving loads a graph only if its binary, which is built with tensorflow-text 2.12.1,
registers every operation. `known_ops.txt` lists the allowed operations;
`scripts/op_registry.py` generates it from the op registries of the releases.
"""

import dataclasses
import functools
import importlib.resources
import os
import pathlib
from collections import defaultdict
from collections.abc import Iterator

from google.protobuf.message import DecodeError
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import saved_model_pb2

from keras_bert_d2l.types import PathLike

GRAPH_FILE = "saved_model.pb"
_REGISTRY = "known_ops.txt"
_KNOWN = "known: "  # prefix of the titles of the registry's allowed sections
_MAX_PLACES = 3  # maximum number of nodes that a finding lists


@dataclasses.dataclass(frozen=True)
class Finding:
    """An operation that TensorFlow Serving does not support.

    Attributes:
        op: Name of the operation.
        origin: Release whose registry contains it, such as `"tensorflow-text 2.21.1"`, or
            `"no known release"`.
        places: Nodes that use it: `"function/node"`, or `"node"` in the main graph.
    """

    op: str
    origin: str
    places: tuple[str, ...]

    def __str__(self) -> str:
        places = ", ".join(self.places[:_MAX_PLACES])
        more = len(self.places) - _MAX_PLACES
        return f"{self.op} ({self.origin}) at {places}" + (f" and {more} more" if more > 0 else "")


def audit_saved_model(path: PathLike) -> list[Finding]:
    """Find the operations of a SavedModel that TensorFlow Serving does not support.

    The audit covers the graphs and all functions in their libraries, even functions that no
    signature uses, because the server registers all of them when it loads a model. An operation
    is allowed if it exists in both TensorFlow 2.12.1 and the TensorFlow release that this package
    supports, or in tensorflow-text 2.12.1.

    Args:
        path: Folder with a `saved_model.pb`, written by any program.

    Returns: one finding per unsupported operation, sorted by name. Empty if there are none.

    Raises:
        FileNotFoundError: The folder has no `saved_model.pb`.
        ValueError: The file is damaged.

    Example:

    ```python
    import keras_bert_d2l as kb

    model = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny"))
    folder = kb.export_saved_model(model, "saved_models/demo")
    print(kb.audit_saved_model(folder))  # []: the server supports all operations
    ```
    """
    places: dict[str, list[str]] = defaultdict(list)
    origins = _origins()
    for meta_graph in read_saved_model(path).meta_graphs:
        graph = meta_graph.graph_def
        functions = {function.signature.name for function in graph.library.function}
        for place, op in _nodes(graph):
            if op not in functions and not origins.get(op, "").startswith(_KNOWN):
                places[op].append(place)
    elsewhere = "no known release"
    return [Finding(op, origins.get(op, elsewhere), tuple(places[op])) for op in sorted(places)]


def check_saved_model(path: PathLike) -> None:
    """Raise `RuntimeError` if TensorFlow Serving cannot load a SavedModel."""
    if findings := audit_saved_model(path):
        raise RuntimeError(
            "TensorFlow Serving cannot load this model because its binary does not support some "
            f"operations in the graph: {'; '.join(map(str, findings))}. Replace them with "
            "TensorFlow's built-in operations."
        )


def read_saved_model(path: PathLike) -> saved_model_pb2.SavedModel:
    """Read the `SavedModel` protocol buffer of a folder.

    Raises:
        FileNotFoundError: The folder has no `saved_model.pb`.
        ValueError: The file is damaged.
    """
    file = pathlib.Path(path, GRAPH_FILE)
    if not file.is_file():
        raise FileNotFoundError(
            f"{os.fspath(path)!r} is not a SavedModel folder: it has no {GRAPH_FILE}. Pass the "
            "folder of one version, such as 'saved_models/demo/1'."
        )
    try:
        saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    except DecodeError as error:
        raise ValueError(f"{os.fspath(file)!r} is damaged: {error}.") from error
    if not saved_model.meta_graphs:
        raise ValueError(f"{os.fspath(file)!r} is damaged: it has no graph.")
    return saved_model


def _nodes(graph: graph_pb2.GraphDef) -> Iterator[tuple[str, str]]:
    """Yield the path and the operation of each node."""
    for node in graph.node:
        yield node.name, node.op
    for function in graph.library.function:
        for node in function.node_def:
            yield f"{function.signature.name}/{node.name}", node.op


@functools.cache
def _origins() -> dict[str, str]:
    """Return a mapping from each operation to the registry section that lists it."""
    text = importlib.resources.files(__package__).joinpath(_REGISTRY).read_text(encoding="utf-8")
    origins, title = {}, ""
    for line in text.splitlines():
        if line.startswith("["):
            title = line.strip("[]")
        elif not line.startswith("#"):
            origins.update(dict.fromkeys(line.split(), title))
    return origins
