"""Audit of a SavedModel for operations that are unsupported or access files.

TensorFlow Serving loads a graph only if its binary registers every operation. `known_ops.txt` lists
the operations of TensorFlow and tensorflow-text by release; `scripts/op_registry.py` generates it
from the op registries of the packages.
"""

import dataclasses
import functools
import importlib.resources
import os
import pathlib
import re
from collections import defaultdict
from collections.abc import Iterator

from google.protobuf.message import DecodeError
from tensorflow.core.framework import graph_pb2, node_def_pb2
from tensorflow.core.protobuf import saved_model_pb2

from keras_bert_d2l.checks import check_choice
from keras_bert_d2l.serving.export.file_access import accesses_files, checkpoint_nodes
from keras_bert_d2l.types import PathLike

ACCESSES_FILES = "accesses files or the network"
GRAPH_FILE = "saved_model.pb"
_REGISTRY = "known_ops.txt"
_RELEASES = ("2.12", "2.20", "2.21")  # in the registry
SERVERS = ("2.12", "2.20")  # each with TensorFlow and tensorflow-text of the same release
_MAX_PLACES = 3  # maximum number of nodes that a finding lists


@dataclasses.dataclass(frozen=True)
class Finding:
    """An operation that TensorFlow Serving does not support, or that accesses files.

    Attributes:
        op: Name of the operation.
        problem: `ACCESSES_FILES`; or for an unsupported operation the releases whose registries
            contain it, such as `"tensorflow-text 2.20.1, 2.21.1"`, or `"no known release"`.
        places: Nodes that use it: `"function/node"`, or `"node"` in the main graph.
    """

    op: str
    problem: str
    places: tuple[str, ...]

    def __str__(self) -> str:
        places = ", ".join(self.places[:_MAX_PLACES])
        more = len(self.places) - _MAX_PLACES
        return f"{self.op} ({self.problem}) at {places}" + (f" and {more} more" if more > 0 else "")


def audit_saved_model(path: PathLike, *, server: str | None = None) -> list[Finding]:
    """Find operations of a SavedModel that are unsupported or access files or the network.

    The audit covers the graphs and all functions in their libraries, even functions that no
    signature uses, because the server registers all of them when it loads a model. By default,
    an operation is supported if TensorFlow or tensorflow-text has it in each of the releases 2.12,
    2.20 and 2.21, because many servers have tensorflow-text 2.12.

    Operations that access files are reported because a SavedModel is a program: whoever wrote it
    decides what it reads and writes. The operations that SavedModel itself adds for saving and
    restoring variables are not reported, unless something else in the graph uses them.

    Args:
        path: Folder with a `saved_model.pb`, written by any program.
        server: Version of TensorFlow Serving, `"2.12"` or `"2.20"`, whose operations are supported.
            TensorFlow Serving 2.20 has tensorflow-text 2.20, with the trimmers. None: the
            operations of all releases.

    Returns: one finding per operation, sorted by name. Empty if there are none.

    Raises:
        FileNotFoundError: The folder has no `saved_model.pb`.
        ValueError: The file is damaged, or `server` is not in the registry.

    Example:

    ```python
    import keras_bert_d2l as kb

    model = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny"))
    folder = kb.export_saved_model(model, "saved_models/demo")
    print(kb.audit_saved_model(folder))  # []
    ```
    """
    if server is not None:
        check_choice("server", server, SERVERS)
    return _findings(read_saved_model(path), server)


def check_saved_model(path: PathLike) -> None:
    """Raise `RuntimeError` if TensorFlow Serving cannot load a SavedModel."""
    findings = [one for one in audit_saved_model(path) if one.problem != ACCESSES_FILES]
    if findings:
        raise RuntimeError(
            "TensorFlow Serving cannot load this model because not all of its releases support "
            f"the operations in the graph: {'; '.join(map(str, findings))}. Replace them with "
            "TensorFlow's built-in operations."
        )


def check_file_access(saved_model: saved_model_pb2.SavedModel) -> None:
    """Raise `ValueError` if a SavedModel has operations that access files or the network."""
    ops = [one.op for one in _findings(saved_model) if one.problem == ACCESSES_FILES]
    if ops:
        raise ValueError(
            "A SavedModel is a program, and this one can access files or the network with your "
            f"rights: it contains {', '.join(ops)}. Use `keras-bert-d2l audit` to see where. If "
            "you trust whoever wrote it, serve it with `--allow-files`."
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
            f"{os.fspath(path)!r} is not a SavedModel folder: it has no {GRAPH_FILE}. "
            f"{_version_hint(pathlib.Path(path))}"
        )
    try:
        saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    except DecodeError as error:
        raise ValueError(f"{os.fspath(file)!r} is damaged: {error}.") from error
    if not saved_model.meta_graphs:
        raise ValueError(f"{os.fspath(file)!r} is damaged: it has no graph.")
    return saved_model


def _version_hint(path: pathlib.Path) -> str:
    versions = [
        file.parent for file in path.glob(f"*/{GRAPH_FILE}") if file.parent.name.isdecimal()
    ]
    if not versions:
        return "Pass the folder that `keras-bert-d2l export` printed."
    newest = max(versions, key=lambda version: int(version.name))
    return f"Pass the folder of one version, such as {os.fspath(newest)!r}."


def _findings(saved_model: saved_model_pb2.SavedModel, server: str | None = None) -> list[Finding]:
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    registry, needed = _registry(), _RELEASES if server is None else (server,)
    for meta_graph in saved_model.meta_graphs:
        graph, of_saver = meta_graph.graph_def, checkpoint_nodes(meta_graph)
        functions = {function.signature.name for function in graph.library.function}
        for function, node in _nodes(graph):
            place = f"{function}/{node.name}" if function else node.name
            origin = registry.get(node.op, "no known release")
            found = re.findall(r" (\d+\.\d+)\.", origin)
            if node.op not in functions and not {*needed} <= {*found}:
                places[node.op, origin].append(place)
            if accesses_files(node) and (function, node.name) not in of_saver:
                places[node.op, ACCESSES_FILES].append(place)
    return [Finding(op, problem, tuple(places[op, problem])) for op, problem in sorted(places)]


def _nodes(graph: graph_pb2.GraphDef) -> Iterator[tuple[str, node_def_pb2.NodeDef]]:
    """Yield each node with the name of its function, which is empty in the main graph."""
    for node in graph.node:
        yield "", node
    for function in graph.library.function:
        for node in function.node_def:
            yield function.signature.name, node


@functools.cache
def _registry() -> dict[str, str]:
    """Return the package and the releases that have each operation, the title of its section."""
    text = importlib.resources.files(__package__).joinpath(_REGISTRY).read_text(encoding="utf-8")
    releases, title = {}, ""
    for line in text.splitlines():
        if line.startswith("["):
            title = line.strip("[]")
        elif not line.startswith("#"):
            releases.update(dict.fromkeys(line.split(), title))
    return releases
