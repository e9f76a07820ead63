"""A SavedModel in, the operations out that TensorFlow Serving does not know.

TensorFlow Serving loads a graph only where each of its operations is registered in its binary,
which is built with tensorflow-text 2.12.1. `known_ops.txt` lists what is allowed;
`scripts/op_registry.py` writes it from the registries of the releases.
"""

import dataclasses
import functools
import importlib.resources
import os
import pathlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

GRAPH_FILE = "saved_model.pb"
_REGISTRY = "known_ops.txt"
_KNOWN = "known: "  # how the titles of the allowed sections of the registry begin
_NAMED_PLACES = 3


@dataclasses.dataclass(frozen=True)
class Finding:
    """An operation that TensorFlow Serving does not know.

    Attributes:
        op: Its name.
        origin: The release whose registry has it, such as `"tensorflow-text 2.21.1"`, or
            `"no release that this package knows"`.
        places: Where it is in the SavedModel: `"function/node"`, or `"node"` in the main graph.
    """

    op: str
    origin: str
    places: tuple[str, ...]

    def __str__(self) -> str:
        places = ", ".join(self.places[:_NAMED_PLACES])
        more = len(self.places) - _NAMED_PLACES
        return f"{self.op} ({self.origin}) at {places}" + (f" and {more} more" if more > 0 else "")


def audit_saved_model(path: str | os.PathLike[str]) -> list[Finding]:
    """Finds the operations of a SavedModel that TensorFlow Serving does not know.

    The graphs and all functions of their libraries are read, whether a signature uses them or not:
    the server registers all of them when it loads. Allowed are the operations that TensorFlow
    2.12.1 and the release that this package is made for both have, and those of tensorflow-text
    2.12.1.

    Args:
        path: The folder with `saved_model.pb`, of any program.

    Returns: a finding for each such operation, by name; none if the server knows all of them.

    Raises:
        FileNotFoundError: The folder holds no `saved_model.pb`.
        ValueError: The file is damaged.
    """
    places: dict[str, list[str]] = defaultdict(list)
    origins = _origins()
    for meta_graph in read_saved_model(path).meta_graphs:
        graph = meta_graph.graph_def
        functions = {function.signature.name for function in graph.library.function}
        for place, op in _nodes(graph):
            if op not in functions and not origins.get(op, "").startswith(_KNOWN):
                places[op].append(place)
    elsewhere = "no release that this package knows"
    return [Finding(op, origins.get(op, elsewhere), tuple(places[op])) for op in sorted(places)]


def check_saved_model(path: str | os.PathLike[str]) -> None:
    """Refuses a SavedModel that TensorFlow Serving would not load.

    Raises:
        RuntimeError: It has operations that the server does not know.
    """
    findings = audit_saved_model(path)
    if findings:
        raise RuntimeError(
            "TensorFlow Serving would not load this model, whose graph has operations that its "
            f"binary does not know: {'; '.join(map(str, findings))}. Write what brings them in "
            "with operations of TensorFlow itself."
        )


def read_saved_model(path: str | os.PathLike[str]) -> Any:
    """Returns the protocol buffer `SavedModel` of a folder.

    Raises:
        FileNotFoundError: The folder holds no `saved_model.pb`.
        ValueError: The file is damaged.
    """
    file = pathlib.Path(path, GRAPH_FILE)
    if not file.is_file():
        raise FileNotFoundError(
            f"{os.fspath(path)!r} is no folder of a SavedModel: it has no {GRAPH_FILE}. Name the "
            "folder of one version, such as 'saved_models/demo/1'."
        )
    try:
        saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    except DecodeError as error:
        raise ValueError(f"{os.fspath(file)!r} is damaged: {error}.") from error
    if not saved_model.meta_graphs:
        raise ValueError(f"{os.fspath(file)!r} is damaged: it holds no graph.")
    return saved_model


def _nodes(graph: Any) -> Iterator[tuple[str, str]]:
    """The place and the operation of each node."""
    for node in graph.node:
        yield node.name, node.op
    for function in graph.library.function:
        for node in function.node_def:
            yield f"{function.signature.name}/{node.name}", node.op


@functools.cache
def _origins() -> dict[str, str]:
    """The section of the registry that each operation is in."""
    text = importlib.resources.files(__package__).joinpath(_REGISTRY).read_text(encoding="utf-8")
    origins, title = {}, ""
    for line in text.splitlines():
        if line.startswith("["):
            title = line.strip("[]")
        elif not line.startswith("#"):
            origins.update(dict.fromkeys(line.split(), title))
    return origins
