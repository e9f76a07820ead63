"""Audit of a SavedModel for operations that are unsupported or access files.

TensorFlow Serving loads a graph only if its binary registers every operation. `known_ops.txt` lists
the operations of TensorFlow and tensorflow-text by release; `scripts/op_registry.py` generates it
from the op registries of the packages.

A SavedModel is a program: loading it runs its initializers, and a request runs a signature. Both
can read and write files with the rights of the server.
"""

import dataclasses
import functools
import importlib.resources
import os
import pathlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from google.protobuf.message import DecodeError
from tensorflow.core.framework import attr_value_pb2, graph_pb2, node_def_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from keras_bert_d2l.types import PathLike

ACCESSES_FILES = "accesses files or the network"
COMPILED = "compiled by XLA, needs --xla_cpu_compilation_enabled in TensorFlow Serving"
GRAPH_FILE = "saved_model.pb"
_REGISTRY = "known_ops.txt"
_ALL_RELEASES = ("2.6", "2.8", "2.12", "2.15", "2.19", "2.20", "2.21")  # in the registry
_TENSORFLOW = "tensorflow "  # begins the titles of its own operations in the registry
_RELEASES = frozenset({"2.12", "2.20", "2.21"})  # that an export must support
_MAX_PLACES = 3  # maximum number of nodes that a finding lists
# The name of a function, or "" for the main graph, and that of one of its nodes.
Place: TypeAlias = tuple[str, str]

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_FILE_OPS = frozenset(
    """
    CSVDataset CSVDatasetV2 CacheDataset CacheDatasetV2 CalibrationStatisticsSaver
    CreateSummaryDbWriter CreateSummaryFileWriter DTensorRestoreV2 DataServiceDataset
    DataServiceDatasetV2 DataServiceDatasetV3 DataServiceDatasetV4 DatasetFromGraph
    DatasetToTFRecord DebugIdentity DebugIdentityV2 DebugIdentityV3 DebugNanCount
    DebugNumericSummary DeserializeIterator DistributedSave DumpTensor ExperimentalCSVDataset
    ExperimentalDatasetToTFRecord ExperimentalLMDBDataset ExperimentalMatchingFilesDataset
    ExperimentalSqlDataset FileSystemSetConfiguration FixedLengthRecordDataset
    FixedLengthRecordDatasetV2 FixedLengthRecordReader FixedLengthRecordReaderV2
    FixedUnigramCandidateSampler GenerateVocabRemapping ImmutableConst
    InitializeTableFromTextFile InitializeTableFromTextFileV2 LMDBDataset LMDBReader
    ListSnapshotChunksDataset LoadAndRemapMatrix LoadDataset MatchingFiles MatchingFilesDataset
    MergeV2Checkpoints ReadFile ReaderReadUpToV2 ReaderReadV2 RecordInput RegisterDataset
    RegisterDatasetV2 Restore RestoreSlice RestoreV2 RpcCall RpcClient RpcServer RpcServerStart
    Save SaveDataset SaveDatasetV2 SaveSlices SaveV2 Skipgram SnapshotChunkDataset
    SnapshotDataset SnapshotDatasetReader SnapshotDatasetV2 SnapshotNestedDatasetReader
    SqlDataset TFRecordDataset TFRecordDatasetV2 TFRecordReader TFRecordReaderV2 TextLineDataset
    TextLineReader TextLineReaderV2 WholeFileReader WholeFileReaderV2 WriteFile
    """.split()
)


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


def audit_saved_model(path: PathLike) -> list[Finding]:
    """Find operations of a SavedModel that are unsupported or access files or the network.

    The audit covers the graphs and all functions in their libraries, even functions that no
    signature uses, because the server registers all of them when it loads a model. An operation is
    supported if TensorFlow or tensorflow-text has it in each of the releases 2.12, 2.20 and 2.21.

    Functions that XLA compiles are reported because TensorFlow Serving compiles on CPUs only if it
    was started with `--xla_cpu_compilation_enabled`.

    Operations that access files are reported because a SavedModel is a program: whoever wrote it
    decides what it reads and writes. The operations that SavedModel itself adds for saving and
    restoring variables are not reported, unless something else in the graph uses them.

    Args:
        path: Folder with a `saved_model.pb`, written by any program.

    Returns: one finding per operation, sorted by name. Empty if there are none.

    Raises:
        FileNotFoundError: The folder has no `saved_model.pb`.
        ValueError: The file is damaged.

    Example:

    ```python
    import keras_bert_d2l as kb

    model = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny"))
    folder = kb.export_saved_model(model, "saved_models/demo")
    print(kb.audit_saved_model(folder))  # []
    ```
    """
    return _findings(read_saved_model(path))


def check_saved_model(path: PathLike) -> None:
    """Raise `RuntimeError` if TensorFlow Serving cannot load a SavedModel."""
    harmless = (ACCESSES_FILES, COMPILED)
    findings = [one for one in audit_saved_model(path) if one.problem not in harmless]
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
            f"rights: it contains {', '.join(ops)}. Use `keras-bert-d2l inspect` to see where. If "
            "you trust whoever wrote it, serve it with `--allow-files`."
        )


def oldest_release(path: PathLike) -> str | None:
    """Return the oldest TensorFlow whose releases, from it on, have all operations of a SavedModel.

    Args:
        path: Folder with a `saved_model.pb`.

    Returns: `"2.6"` or a later minor version; `None` if an operation is not TensorFlow's own, or
        newer than 2.21.
    """
    found, registry = set(_ALL_RELEASES), _registry()
    for meta_graph in read_saved_model(path).meta_graphs:
        graph = meta_graph.graph_def
        functions = {function.signature.name for function in graph.library.function}
        for op in {node.op for _, node in _nodes(graph)} - functions:
            title = registry.get(op, "")
            found &= (
                {*re.findall(r" (\d+\.\d+)\.", title)} if title.startswith(_TENSORFLOW) else set()
            )
    return next((release for release in _ALL_RELEASES if release in found), None)


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
            "folder of one version, such as 'saved_models/NAME/1'."
        )
    try:
        saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    except DecodeError as error:
        raise ValueError(f"{os.fspath(file)!r} is damaged: {error}.") from error
    if not saved_model.meta_graphs:
        raise ValueError(f"{os.fspath(file)!r} is damaged: it has no graph.")
    return saved_model


def newest_version(path: pathlib.Path) -> pathlib.Path | None:
    """Return the numbered subfolder of the newest version of a model, if there is one."""
    graphs = path.glob(f"*/{GRAPH_FILE}")
    versions = [file.parent for file in graphs if file.parent.name.isdecimal()]
    return max(versions, key=lambda folder: int(folder.name), default=None)


def _findings(saved_model: saved_model_pb2.SavedModel) -> list[Finding]:
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    registry = _registry()
    for meta_graph in saved_model.meta_graphs:
        graph, of_saver = meta_graph.graph_def, _Graph(meta_graph).checkpoint_places()
        functions = {function.signature.name for function in graph.library.function}
        for function, node in _nodes(graph):
            place = f"{function}/{node.name}" if function else node.name
            origin = registry.get(node.op, "no known release")
            found = re.findall(r" (\d+\.\d+)\.", origin)
            if node.op not in functions and not _RELEASES <= {*found}:
                places[node.op, origin].append(place)
            if _accesses_files(node) and (function, node.name) not in of_saver:
                places[node.op, ACCESSES_FILES].append(place)
            if "_XlaMustCompile" in node.attr and node.attr["_XlaMustCompile"].b:
                places[node.op, COMPILED].append(place)
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


def _accesses_files(node: node_def_pb2.NodeDef) -> bool:
    """Return whether an operation can access files or the network.

    `DatasetFromGraph` and `DeserializeIterator` run a graph that is hidden in a string.
    """
    if node.op == "PrintV2":
        stream = node.attr["output_stream"]
        return stream.WhichOneof("value") not in (None, "s") or stream.s.startswith(b"file:")
    if node.op in ("DecodeProtoV2", "EncodeProto"):
        return not node.attr["descriptor_source"].s.startswith((b"local://", b"bytes://"))
    return node.op in _FILE_OPS


class _Graph:
    """The nodes of the main graph and of all functions by place, and what each of them uses."""

    def __init__(self, meta_graph: meta_graph_pb2.MetaGraphDef) -> None:
        self._meta_graph = meta_graph
        graph = meta_graph.graph_def
        self._arguments = {
            one.signature.name: [argument.name for argument in one.signature.input_arg]
            for one in graph.library.function
        }
        self._nodes = {(function, node.name): node for function, node in _nodes(graph)}
        self._calls = {
            place: {node.op, *_names(node.attr.values())} & self._arguments.keys()
            for place, node in self._nodes.items()
        }
        self._members: dict[str, list[Place]] = defaultdict(list)
        for place in self._nodes:
            self._members[place[0]].append(place)

    def checkpoint_places(self) -> set[Place]:
        """Return the operations that only SavedModel's own saver uses, for variables.

        They are harmless: a loader restores the variables of the same folder, and no request runs
        them. An operation that a signature, an initializer or another function also uses is not
        included, and neither is one that restores another file than the one whose name the loader
        passes.
        """
        saver = self._meta_graph.saver_def
        saving = self._used_only_for(saver.save_tensor_name, saver.restore_op_name)
        restoring = self._used_only_for(saver.restore_op_name, saver.save_tensor_name)
        return {x for x in saving if self._nodes[x].op in ("SaveV2", "MergeV2Checkpoints")} | {
            x for x in restoring if self._nodes[x].op == "RestoreV2" and self._reads_passed_file(x)
        }

    def _used_only_for(self, target: str, other_target: str) -> set[Place]:
        """Return the nodes that one target of the saver needs and nothing else does."""
        needed = self._needed([("", _node(target))])
        tensors = [other_target]
        for signature in self._meta_graph.signature_def.values():
            tensors += [info.name for info in signature.outputs.values()]
        for collection in self._meta_graph.collection_def.values():
            tensors += collection.node_list.value  # includes the initializer of a model
        others = [("", _node(name)) for name in tensors]
        for function in self._meta_graph.object_graph_def.concrete_functions:
            others += self._members[function]
        return needed - self._needed([*others, *(self._nodes.keys() - needed)])

    def _needed(self, targets: Iterable[Place]) -> set[Place]:
        """Return the nodes that the targets use, with all nodes of the functions they call."""
        found, left = set[Place](), [*targets]
        while left:
            place = left.pop()
            if place in self._nodes and place not in found:
                found.add(place)
                left += self._inputs(place)
                for function in self._calls[place]:
                    left += self._members[function]
        return found

    def _reads_passed_file(self, restorer: Place) -> bool:
        """Return whether a `RestoreV2` reads the file whose name the loader passes to the saver."""
        passed = ("", _node(self._meta_graph.saver_def.filename_tensor_name))
        left, seen = self._inputs(restorer)[:1], {passed}
        if not left:
            return False
        while left:
            place = left.pop()
            if place in seen:
                continue
            seen.add(place)
            sources = self._sources(place)
            if not sources:
                return False
            left += sources
        return True

    def _sources(self, place: Place) -> list[Place]:
        """Return where a copy or an argument of a function comes from; empty if it is unknown."""
        function, name = place
        if place in self._nodes:
            return self._inputs(place)[:1] if self._nodes[place].op == "Identity" else []
        if name not in self._arguments.get(function, ()):
            return []
        number = self._arguments[function].index(name)
        callers = [place for place, called in self._calls.items() if function in called]
        if any(self._nodes[one].op not in _CALLS | {function} for one in callers):
            return []
        passed = [self._inputs(caller)[number : number + 1] for caller in callers]
        return [] if [] in passed else [place for [place] in passed]

    def _inputs(self, place: Place) -> list[Place]:
        return [(place[0], _node(name)) for name in self._nodes[place].input]


def _node(tensor: str) -> str:
    """Return the name of the node of a tensor or of a control input."""
    return tensor.removeprefix("^").partition(":")[0]


def _names(values: Iterable[attr_value_pb2.AttrValue]) -> Iterator[str]:
    """Yield the names of the functions among the attributes of a node."""
    for value in values:
        for function in (value.func, *value.list.func):
            yield function.name
            yield from _names(function.attr.values())
