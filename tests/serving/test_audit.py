import sys

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_bert_d2l.serving.audit import (
    ACCESSES_FILES,
    Finding,
    audit_saved_model,
    check_file_access,
    check_saved_model,
    oldest_release,
    read_saved_model,
)


def operations(folder):
    content = (folder / "saved_model.pb").read_bytes()
    graph = saved_model_pb2.SavedModel.FromString(content).meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    return {node.op for node in nodes}


def write_graph(folder, *ops, function="", library=()):
    saved_model = saved_model_pb2.SavedModel()
    graph = saved_model.meta_graphs.add().graph_def
    for op in ops:
        graph.node.add(name=f"its_{op}", op=op)
    if library:
        added = graph.library.function.add()
        added.signature.name = function
        for op in library:
            added.node_def.add(name=f"its_{op}", op=op)
    (folder / "saved_model.pb").write_bytes(saved_model.SerializeToString())


def test_exports_contain_only_ops_supported_by_the_server(exported):
    assert audit_saved_model(exported) == []
    assert {op for op in operations(exported) if not hasattr(tf.raw_ops, op)} == set()


def test_ops_are_found_in_the_graph_and_in_its_functions(tmp_path):
    write_graph(tmp_path, "AddV2", "FFTND", function="f", library=["MatMul", "FFTND", "MyOp"])
    assert audit_saved_model(tmp_path) == [
        Finding("FFTND", "tensorflow 2.15.1, 2.19.1, 2.20.0, 2.21.0", ("its_FFTND", "f/its_FFTND")),
        Finding("MyOp", "no known release", ("f/its_MyOp",)),
    ]
    with pytest.raises(RuntimeError, match=r"MyOp \(no known release\) at f/its"):
        check_saved_model(tmp_path)
    assert str(Finding("MyOp", "new", tuple("abcde"))) == "MyOp (new) at a, b, c and 2 more"


def test_the_oldest_release_has_all_ops(exported, tmp_path):
    assert oldest_release(exported) == "2.6"
    ops = {
        "2.8": "AnonymousHashTable",
        "2.12": "ApproxTopK",
        "2.15": "FFTND",
        None: "NormalizeUTF8",
    }
    for release, op in ops.items():
        write_graph(tmp_path, "AddV2", op, "f", function="f", library=["MatMul"])
        assert oldest_release(tmp_path) == release


def test_a_library_function_call_is_not_an_unsupported_op(tmp_path):
    write_graph(tmp_path, "f", function="f", library=["MatMul"])
    assert audit_saved_model(tmp_path) == []


def test_the_tensorflow_text_trimmer_is_reported(tensorflow_text, tmp_path):
    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((None,), tf.string)])
        def trim(self, text):
            ragged = tf.strings.split(text)
            return tensorflow_text.RoundRobinTrimmer(4).trim([ragged])[0].to_tensor()

    tf.saved_model.save(Module(), str(tmp_path))
    (finding,) = audit_saved_model(tmp_path)
    assert finding.op == "TFText>RoundRobinTrim"
    assert finding.problem == "tensorflow-text 2.20.1, 2.21.1"


def test_a_folder_without_a_model_is_rejected(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no saved_model.pb. Pass the folder"):
        audit_saved_model(tmp_path)


@pytest.mark.parametrize("content", [b"", b"no protocol buffer"])
def test_a_damaged_model_is_rejected(content, tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(content)
    with pytest.raises(ValueError, match="is damaged"):
        audit_saved_model(tmp_path)


def save(folder, module, **signatures):
    functions = {name: f.get_concrete_function() for name, f in signatures.items()}
    tf.saved_model.save(module, str(folder), functions)


def found_ops(saved_model, folder):
    (folder / "saved_model.pb").write_bytes(saved_model.SerializeToString())
    return [finding.op for finding in audit_saved_model(folder)]


def test_ops_that_access_files_are_reported(tmp_path):
    module = tf.Module()
    module.variable = tf.Variable([1.0])  # saved and restored by SavedModel's own functions
    name = tf.TensorSpec((), tf.string)
    module.read = tf.function(lambda name: {"content": tf.io.read_file(name)}, [name])
    save(tmp_path, module, read=module.read)
    (finding,) = audit_saved_model(tmp_path)
    assert (finding.op, finding.problem) == ("ReadFile", ACCESSES_FILES)
    with pytest.raises(ValueError, match=r"A SavedModel is a program.*ReadFile.*`--allow-files`"):
        check_file_access(read_saved_model(tmp_path))
    check_saved_model(tmp_path)  # the server has the operation


def test_an_op_that_only_a_newer_tensorflow_has_is_also_reported_for_its_file_access(tmp_path):
    write_graph(tmp_path, "TFRecordDatasetV2", "DatasetFromGraph", "DecodeProtoV2")
    with pytest.raises(ValueError, match="TFRecordDatasetV2"):
        check_file_access(read_saved_model(tmp_path))
    found = audit_saved_model(tmp_path)
    assert {one.op for one in found if one.problem == ACCESSES_FILES} == {
        *("TFRecordDatasetV2", "DatasetFromGraph", "DecodeProtoV2")
    }
    assert ("TFRecordDatasetV2", "tensorflow 2.15.1, 2.19.1, 2.20.0, 2.21.0") in {
        (one.op, one.problem) for one in found
    }


def test_only_savedmodels_own_saver_may_use_checkpoint_ops(tmp_path):
    class Saver(tf.Module):
        def __init__(self):
            self.variable = tf.Variable([1.0])

        @tf.function(input_signature=[tf.TensorSpec((), tf.string)])
        def write(self, name):
            tf.raw_ops.SaveV2(
                prefix=name, tensor_names=["x"], shape_and_slices=[""], tensors=[self.variable]
            )
            return {"name": tf.identity(name)}

    module = Saver()
    save(tmp_path, module, write=module.write)
    (finding,) = audit_saved_model(tmp_path)
    assert (finding.op, finding.problem) == ("SaveV2", ACCESSES_FILES)
    assert all("inference_write" in place for place in finding.places)


@pytest.mark.parametrize("name", ["__inference__traced_save_1", "f"])
def test_a_function_of_the_saver_that_something_else_calls_is_reported(name, tmp_path):
    saved_model = saved_model_pb2.SavedModel()
    meta_graph = saved_model.meta_graphs.add()
    graph = meta_graph.graph_def
    function = graph.library.function.add()
    function.signature.name = name
    for op in ("MergeV2Checkpoints", "RestoreV2", "SaveV2", "WriteFile"):
        function.node_def.add(name=op, op=op)
    caller = graph.node.add(name="save", op="PartitionedCall")
    caller.attr["f"].func.name = name
    meta_graph.saver_def.save_tensor_name = "save:0"

    assert found_ops(saved_model, tmp_path) == ["RestoreV2", "WriteFile"]  # not needed to save
    every = ["MergeV2Checkpoints", "RestoreV2", "SaveV2", "WriteFile"]
    meta_graph.signature_def["read"].outputs["x"].name = "save:0"
    assert found_ops(saved_model, tmp_path) == every
    del meta_graph.signature_def["read"]
    meta_graph.collection_def["saved_model_main_op"].node_list.value.append("save")
    assert found_ops(saved_model, tmp_path) == every


def test_the_saver_of_a_tensorflow_1_model_is_not_reported(tmp_path):
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x, weight = v1.placeholder(tf.float32), v1.get_variable("x", (), tf.float32)
        session.run(weight.initializer)
        inputs, outputs = (
            {name: v1.saved_model.build_tensor_info(tensor)}
            for name, tensor in (("x", x), ("y", x * weight))
        )
        builder = v1.saved_model.Builder(str(tmp_path / "1"))
        signature = v1.saved_model.build_signature_def(inputs, outputs)
        builder.add_meta_graph_and_variables(session, ["serve"], {"predict": signature})
        builder.save()
    assert {"RestoreV2", "SaveV2"} <= operations(tmp_path / "1")
    assert audit_saved_model(tmp_path / "1") == []


def test_printing_is_reported_only_if_it_writes_to_a_file(tmp_path):
    for output, expected in ((sys.stderr, []), (f"file://{tmp_path}/log", ["PrintV2"])):
        module = tf.Module()
        module.show = tf.function(printer(output), input_signature=[tf.TensorSpec((), tf.string)])
        save(tmp_path, module, show=module.show)
        assert [finding.op for finding in audit_saved_model(tmp_path)] == expected


def test_a_stream_for_printing_that_a_caller_chooses_is_reported(tmp_path):
    saved_model = saved_model_pb2.SavedModel()
    function = saved_model.meta_graphs.add().graph_def.library.function.add()
    function.signature.name = "f"
    node = function.node_def.add(name="print", op="PrintV2")
    node.attr["output_stream"].placeholder = "stream"
    assert found_ops(saved_model, tmp_path) == ["PrintV2"]


@pytest.mark.parametrize(
    ("name", "expected"), [("file", []), ("secret", ["RestoreV2"]), ("", ["RestoreV2"])]
)
def test_a_saver_may_restore_only_the_file_that_the_loader_passes(name, expected, tmp_path):
    saved_model = saved_model_pb2.SavedModel()
    meta_graph = saved_model.meta_graphs.add()
    graph = meta_graph.graph_def
    for node, op in (("file", "Placeholder"), ("secret", "Const")):
        graph.node.add(name=node, op=op)
    function = graph.library.function.add()
    function.signature.name = "restore"
    function.signature.input_arg.add(name="prefix")
    function.node_def.add(name="copy", op="Identity", input=["prefix"])
    function.node_def.add(name="restore", op="RestoreV2", input=["copy:output:0"])
    inputs = [f"{name}:0"] if name else []  # a damaged call
    call = graph.node.add(name="call", op="StatefulPartitionedCall", input=inputs)
    call.attr["f"].func.name = "restore"
    meta_graph.saver_def.filename_tensor_name = "file:0"
    meta_graph.saver_def.restore_op_name = "call"
    assert found_ops(saved_model, tmp_path) == expected


def test_a_function_does_not_hide_behind_the_name_of_a_node_of_the_saver(tmp_path):
    saved_model = saved_model_pb2.SavedModel()
    meta_graph = saved_model.meta_graphs.add()
    graph = meta_graph.graph_def
    graph.node.add(name="file", op="Placeholder")
    graph.node.add(name="save/restore", op="RestoreV2", input=["file"])
    function = graph.library.function.add()
    function.signature.name = "save"
    function.node_def.add(name="restore", op="RestoreV2", input=["x"])
    meta_graph.saver_def.filename_tensor_name = "file:0"
    meta_graph.saver_def.restore_op_name = "save/restore"
    (tmp_path / "saved_model.pb").write_bytes(saved_model.SerializeToString())
    (finding,) = audit_saved_model(tmp_path)
    assert finding.places == ("save/restore",)


def printer(output):
    def show(text):
        tf.print(text, output_stream=output)
        return {"text": tf.identity(text)}

    return show
