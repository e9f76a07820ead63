from tensorflow.core.protobuf import saved_model_pb2


def write_model(folder, op):
    saved_model = saved_model_pb2.SavedModel()
    saved_model.meta_graphs.add().graph_def.node.add(name="node", op=op)
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(saved_model.SerializeToString())
    return folder


def test_audit_lists_what_the_server_does_not_know(run, error, tmp_path):
    assert run("audit", write_model(tmp_path / "good", "MatMul")).stdout == (
        "TensorFlow Serving knows all operations.\n"
    )
    bad = write_model(tmp_path / "bad", "TFText>RoundRobinTrim")
    assert run("audit", bad, exit_code=1).stdout == (
        "TFText>RoundRobinTrim (tensorflow-text 2.21.1) at node\n"
    )
    assert "saved_model.pb" in error("audit", tmp_path)
