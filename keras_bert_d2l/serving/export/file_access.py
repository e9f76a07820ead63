"""Operations of a SavedModel that access files or the network.

A SavedModel is a program: loading it runs its initializers, and a request runs a signature. Both
can read and write files with the rights of the server.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from tensorflow.core.framework import attr_value_pb2, node_def_pb2
from tensorflow.core.protobuf import meta_graph_pb2

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


def accesses_files(node: node_def_pb2.NodeDef) -> bool:
    """Return whether an operation can access files or the network.

    `DatasetFromGraph` and `DeserializeIterator` run a graph that is hidden in a string.
    """
    if node.op == "PrintV2":
        stream = node.attr["output_stream"]
        return stream.WhichOneof("value") not in (None, "s") or stream.s.startswith(b"file:")
    if node.op in ("DecodeProtoV2", "EncodeProto"):
        return not node.attr["descriptor_source"].s.startswith((b"local://", b"bytes://"))
    return node.op in _FILE_OPS


def checkpoint_nodes(meta_graph: meta_graph_pb2.MetaGraphDef) -> set[Place]:
    """Return the operations that only SavedModel's own saver uses, to save or restore variables.

    They are harmless: a loader restores the variables of the same folder, and no request runs them.
    An operation that a signature, an initializer or another function also uses is not included, and
    neither is one that restores another file than the one whose name the loader passes.
    """
    saver = meta_graph.saver_def
    saving = _used_only_for(meta_graph, saver.save_tensor_name, saver.restore_op_name)
    restoring = _used_only_for(meta_graph, saver.restore_op_name, saver.save_tensor_name)
    return {place for place, op in saving.items() if op in ("SaveV2", "MergeV2Checkpoints")} | {
        place
        for place, op in restoring.items()
        if op == "RestoreV2" and _reads_passed_file(meta_graph, place)
    }


def _used_only_for(
    meta_graph: meta_graph_pb2.MetaGraphDef, target: str, other_target: str
) -> dict[Place, str]:
    """Return the operations that one target of the saver needs and nothing else does, by place."""
    graph = meta_graph.graph_def
    nodes = {node.name: node for node in graph.node}
    bodies = {one.signature.name: one.node_def for one in graph.library.function}
    others = [other_target]
    for signature in meta_graph.signature_def.values():
        others += [info.name for info in signature.outputs.values()]
    for collection in meta_graph.collection_def.values():
        others += collection.node_list.value  # includes the operation that initializes a model
    needed = _needed(nodes, [target])
    of_others = _needed(nodes, others) | (nodes.keys() - needed)
    functions = _called(bodies, (nodes[name] for name in needed - of_others))
    functions -= _called(bodies, (nodes[name] for name in of_others))
    for name in bodies.keys() - _called(bodies, nodes.values()):
        functions -= _called(bodies, bodies[name])
    functions -= set(meta_graph.object_graph_def.concrete_functions)
    found = {("", name): nodes[name].op for name in needed - of_others}
    for name in functions:
        found |= {(name, node.name): node.op for node in bodies[name]}
    return found


def _reads_passed_file(meta_graph: meta_graph_pb2.MetaGraphDef, place: Place) -> bool:
    """Return whether a `RestoreV2` reads the file whose name the loader passes to the saver."""
    graph = meta_graph.graph_def
    bodies = {one.signature.name: one.node_def for one in graph.library.function}
    nodes = {
        (function, node.name): node
        for function, body in {"": graph.node, **bodies}.items()
        for node in body
    }
    arguments = {
        one.signature.name: [argument.name for argument in one.signature.input_arg]
        for one in graph.library.function
    }
    left, seen = [place], set[Place]()
    while left:
        function, name = left.pop()
        name = name.partition(":")[0]
        if (function, name) in seen:
            continue
        seen.add((function, name))
        if (function, name) == ("", meta_graph.saver_def.filename_tensor_name.partition(":")[0]):
            continue
        if (function, name) in nodes:
            node = nodes[function, name]
            if not node.input or (node.op != "Identity" and (function, name) != place):
                return False
            left.append((function, node.input[0]))
        elif name in arguments.get(function, ()):
            number = arguments[function].index(name)
            for (caller, _), node in nodes.items():
                if function in {node.op, *_names(node.attr.values())}:
                    if node.op not in _CALLS | {function} or number >= len(node.input):
                        return False
                    left.append((caller, node.input[number]))
        else:
            return False
    return True


def _needed(nodes: Mapping[str, node_def_pb2.NodeDef], targets: Iterable[str]) -> set[str]:
    """Return the names of the nodes that run when the targets are computed."""
    found: set[str] = set()
    left = list(targets)
    while left:
        name = left.pop().removeprefix("^").partition(":")[0]
        if name in nodes and name not in found:
            found.add(name)
            left += nodes[name].input
    return found


def _called(
    bodies: Mapping[str, Iterable[node_def_pb2.NodeDef]], nodes: Iterable[node_def_pb2.NodeDef]
) -> set[str]:
    """Return the names of the functions that nodes call, directly or through other functions."""
    found: set[str] = set()
    left = list(nodes)
    while left:
        node = left.pop()
        for name in {node.op, *_names(node.attr.values())} - found:
            if name in bodies:
                found.add(name)
                left += bodies[name]
    return found


def _names(values: Iterable[attr_value_pb2.AttrValue]) -> Iterator[str]:
    """Yield the names of the functions among the attributes of a node."""
    for value in values:
        for function in (value.func, *value.list.func):
            yield function.name
            yield from _names(function.attr.values())
