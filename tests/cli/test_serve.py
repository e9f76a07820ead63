import functools
import warnings
from pathlib import Path

import pytest
from tensorflow.core.protobuf import saved_model_pb2

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.loading import load_pretrained
from keras_bert_d2l.checkpoints.saving import save_pretrained
from keras_bert_d2l.serving.server import local_server
from keras_bert_d2l.tasks.regress.model import SequenceRegressor


def write_model(folder, op):
    saved_model = saved_model_pb2.SavedModel()
    saved_model.meta_graphs.add().graph_def.node.add(name="node", op=op)
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(saved_model.SerializeToString())
    return folder


def test_audit_lists_operations_that_tensorflow_serving_does_not_support(run, error, tmp_path):
    good = run("inspect", write_model(tmp_path / "good", "MatMul"))
    assert good.stdout == (
        "TensorFlow Serving supports all operations, and none accesses files or the network.\n"
    )
    assert good.stderr.startswith("Its weights are not listed: ")
    bad = write_model(tmp_path / "bad", "TFText>RoundRobinTrim")
    assert run("inspect", bad, exit_code=1).stdout == (
        "TFText>RoundRobinTrim (tensorflow-text 2.20.1, 2.21.1) at node\n"
    )
    write_model(tmp_path / "2", "MatMul")
    write_model(tmp_path / "10", "WriteFile")
    assert f"Pass the folder of one version, such as '{tmp_path}/10'" in error("inspect", tmp_path)
    assert run("inspect", tmp_path / "10", exit_code=1).stdout == (
        "WriteFile (accesses files or the network) at node\n"
    )


@pytest.mark.parametrize(("signal_number", "code"), [(None, 130), (15, 143)])
def test_serve_does_not_wait_for_threads_after_a_signal(
    run, tmp_path, monkeypatch, signal_number, code
):
    def serve(path, **options):
        error = KeyboardInterrupt()
        if signal_number is not None:
            error.signal_number = signal_number
        raise error

    monkeypatch.setattr(local_server, "serve", serve)
    codes = []
    monkeypatch.setattr("os._exit", codes.append)
    run("serve", tmp_path)
    assert codes == [code]


@pytest.mark.filterwarnings("default")
def test_warnings_are_one_line_without_their_place_in_the_code(run, tmp_path, monkeypatch):
    warn = functools.partial(warnings.warn, "`path`:\n odd", stacklevel=2)
    monkeypatch.setattr(local_server, "serve", lambda *_, **__: [warn(), warn()])
    assert run("serve", tmp_path).stderr == "Warning: PATH: odd\n"


@pytest.fixture
def exported(monkeypatch):
    """The models and the options that the exports get, which do not run."""
    calls = []

    def record(model, out, **options):
        calls.append((type(model).__name__, options))
        return Path(out, "1")

    for name in ("export_saved_model", "export_onnx"):
        monkeypatch.setattr(kb, name, record)
    return calls


def test_the_exports_get_the_model_and_the_options(run, error, trained, tmp_path, exported):
    task = tmp_path / "task"
    save_pretrained(SequenceRegressor(load_pretrained(trained, verbose=False).model), task)
    command = ("export", "--pairs", "--version", 3, "--out", "out", "--model")
    assert run(*command, trained).stdout == f"Exported {trained} to out/1\n"
    run(*command, task)
    command = ("export", "--format", "onnx", "--out", "onnx", "--model", trained)
    assert run(*command, "--int8", "--pairs").stdout == f"Exported {trained} to onnx/1\n"
    options = {"version": 3, "pairs": True}
    assert exported == [
        ("BERTModel", {**options, "run_dir": str(trained)}),
        ("SequenceRegressor", {**options, "run_dir": None}),
        ("BERTModel", {"pairs": True, "int8": True}),
    ]
    for option, message in (
        ("--int8", "--int8 is for --format onnx"),
        ("--format", "--version is"),
    ):
        more = (option, "onnx") if option == "--format" else (option,)
        assert message in error("export", "--version", 3, "--out", "out", *more)
