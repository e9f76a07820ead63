import onnx


def test_a_run_is_exported(run, error, trained, tmp_path):
    folder = tmp_path / "onnx"
    stdout = run("export-onnx", "--model", trained, "--out", folder, "--int8").stdout
    assert stdout == f"Exported to {folder / 'model.onnx'}\n"
    graph = onnx.load(folder / "model.onnx").graph
    assert "MatMulInteger" in [node.op_type for node in graph.node]
    names = [value.name for value in graph.output]
    assert names == ["encoded", "pooled", "mlm_logits", "nsp_logits"]
    assert (folder / "vocab.txt").read_text() == (trained / "vocab.txt").read_text()
    assert "choose another name" in error("export-onnx", "--model", trained, "--out", folder)
