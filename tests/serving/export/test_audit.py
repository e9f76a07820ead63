import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_bert_d2l.serving.export.audit import Finding, audit_saved_model, check_saved_model
from keras_bert_d2l.text._tensorflow_text import tensorflow_text


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
    beside_tensorflow = {op for op in operations(exported) if not hasattr(tf.raw_ops, op)}
    assert beside_tensorflow == {"FastWordpieceTokenizeWithOffsets", "NormalizeUTF8"}


def test_ops_are_found_in_the_graph_and_in_its_functions(tmp_path):
    write_graph(tmp_path, "AddV2", "FFTND", function="f", library=["MatMul", "FFTND", "MyOp"])
    assert audit_saved_model(tmp_path) == [
        Finding("FFTND", "tensorflow 2.21.0", ("its_FFTND", "f/its_FFTND")),
        Finding("MyOp", "no known release", ("f/its_MyOp",)),
    ]
    with pytest.raises(RuntimeError, match=r"MyOp \(no known release\) at f/its"):
        check_saved_model(tmp_path)


def test_a_library_function_call_is_not_an_unsupported_op(tmp_path):
    write_graph(tmp_path, "f", function="f", library=["MatMul"])
    assert audit_saved_model(tmp_path) == []


def test_the_tensorflow_text_trimmer_is_reported(tmp_path):
    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((None,), tf.string)])
        def trim(self, text):
            ragged = tf.strings.split(text)
            return tensorflow_text().RoundRobinTrimmer(4).trim([ragged])[0].to_tensor()

    tf.saved_model.save(Module(), str(tmp_path))
    (finding,) = audit_saved_model(tmp_path)
    assert finding.op == "TFText>RoundRobinTrim"
    assert finding.origin.startswith("tensorflow-text 2.21")


def test_only_the_first_nodes_of_a_finding_are_printed():
    finding = Finding("MyOp", "no release", tuple("abcde"))
    assert str(finding) == "MyOp (no release) at a, b, c and 2 more"


def test_a_folder_without_a_model_is_rejected(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no saved_model.pb. Pass the folder of one"):
        audit_saved_model(tmp_path)


@pytest.mark.parametrize("content", [b"", b"no protocol buffer"])
def test_a_damaged_model_is_rejected(content, tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(content)
    with pytest.raises(ValueError, match="is damaged"):
        audit_saved_model(tmp_path)
