import functools
import re
import warnings
from pathlib import Path

import pytest
from tensorflow.core.protobuf import saved_model_pb2

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.loading import load_pretrained
from keras_bert_d2l.checkpoints.saving import save_pretrained
from keras_bert_d2l.cli.input_output import load
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.serving.server import local_server
from keras_bert_d2l.tasks.regress.model import SequenceRegressor
from keras_bert_d2l.text.vocab import Vocab
from tests.checkpoints.sbert_folders import CLS, write

VOCAB = Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c"])
CONFIG = BERTConfig.preset(
    "google", vocab_size=8, num_hiddens=4, ffn_num_hiddens=8, num_heads=2, num_blks=1, max_len=16
)


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "checkpoint"
    save_pretrained(BERTModel.from_bert_config(CONFIG), folder)
    return folder


def test_convert_writes_a_different_format_and_reports_the_detected_format(
    run, checkpoint, tmp_path
):
    out = run(
        "convert", checkpoint, tmp_path / "new", "--format", "huggingface"
    ).stdout.splitlines()
    assert out[0].startswith(f"{checkpoint}: keras_bert_d2l checkpoint; 1 blocks, 4 wide")
    assert out[1:] == [f"Written to {tmp_path / 'new'}"]
    assert "model_type" in (tmp_path / "new/config.json").read_text()
    run("convert", tmp_path / "new", tmp_path / "back")
    assert load_pretrained(tmp_path / "back").config == CONFIG
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "back" / name).read_bytes() == (checkpoint / name).read_bytes()


def test_inspect_prints_a_summary_and_a_table(run, checkpoint):
    out = run("inspect", checkpoint).stdout.splitlines()
    assert out[0].startswith(f"{checkpoint}: keras_bert_d2l checkpoint; 1 blocks, 4 wide")
    assert out[1].split() == ["name", "shape", "dtype", "mean", "std"]
    assert len({len(line) for line in out[1:]}) == 1  # the columns are aligned
    assert any(re.fullmatch(r"mlm/bias +8 +F32 +0\.00000 +0\.00000", line) for line in out)
    assert any(line.startswith("encoder/pos_embedding ") and "1 x 16 x 4" in line for line in out)


def test_commands_accept_names_of_the_hub(run, error, checkpoint, local_hub, tmp_path):
    local_hub.add("someone/tiny", checkpoint)
    assert run("inspect", "someone/tiny@main").stdout.startswith("someone/tiny@main: keras_bert")
    run("convert", "someone/tiny", tmp_path / "same")
    assert load_pretrained(tmp_path / "same").config == CONFIG
    stderr = run("fill-mask", "a [MASK]", "--model", "someone/tiny", exit_code=2).stderr
    assert "Strings need a tokenizer" in stderr
    assert "no file or folder 'runs/x', and downloading" in error("embed", "a", "-m", "runs/x")


def test_a_model_of_sentence_transformers_is_exported_with_its_pooling(checkpoint, tmp_path):
    assert isinstance(load(checkpoint, as_embedder=None).model, BERTModel)
    folder = write(tmp_path / "embedder", pooling=CLS)
    assert load(folder, as_embedder=None).model.pooling == "cls"


def test_bad_input_gives_a_one_line_error(error, checkpoint, tmp_path):
    new = tmp_path / "new"
    assert "Looked for" in error("inspect", tmp_path)
    assert "--format" in error("convert", checkpoint, new, "--format", "torch")
    assert "cannot express" in error("convert", checkpoint, new, "--format", "book")
    assert "--num-heads" in error("inspect", checkpoint, "--num-heads", "4")
    assert not new.exists()


@pytest.mark.slow
def test_a_missing_head_is_reported_on_stderr(run, trained, tmp_path):
    import safetensors.numpy

    folder = tmp_path / "headless"
    run("convert", trained, folder)
    file = folder / "model.safetensors"
    weights = safetensors.numpy.load_file(file)
    safetensors.numpy.save_file({k: v for k, v in weights.items() if k[:3] != "mlm"}, file)
    (folder / "SHA256SUMS").unlink()
    result = run("fill-mask", "the [MASK] .", "--model", folder, exit_code=2)
    assert "missing and freshly initialized: mlm" in result.stderr
    assert "Load a checkpoint that has the head" in result.stderr


def write_graph(folder, op):
    saved_model = saved_model_pb2.SavedModel()
    saved_model.meta_graphs.add().graph_def.node.add(name="node", op=op)
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(saved_model.SerializeToString())
    return folder


def test_audit_lists_operations_that_tensorflow_serving_does_not_support(run, error, tmp_path):
    good = run("inspect", write_graph(tmp_path / "good", "MatMul"))
    assert good.stdout == (
        "TensorFlow Serving supports all operations, and none accesses files or the network.\n"
        "TensorFlow has them since version 2.6.\n"
    )
    assert good.stderr.startswith("Its weights are not listed: ")
    bad = write_graph(tmp_path / "bad", "TFText>RoundRobinTrim")
    assert run("inspect", bad, exit_code=1).stdout == (
        "TFText>RoundRobinTrim (tensorflow-text 2.20.1, 2.21.1) at node\n"
    )
    write_graph(tmp_path / "2", "MatMul")
    write_graph(tmp_path / "10", "WriteFile")
    assert "Pass the folder of one version, such as" in error("inspect", tmp_path)
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
    warn = functools.partial(warnings.warn, "`paths`:\n odd", stacklevel=2)
    monkeypatch.setattr(local_server, "serve", lambda *_, **__: [warn(), warn()])
    assert run("serve", tmp_path).stderr == "Warning: PATHS: odd\n"


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
    short = ("export", "--truncate-dim", 2, "--out", "out", "--model", trained)
    run(*short)
    assert exported[3][0] == "TextEmbedder"
    assert "--truncate-dim is for models that embed texts" in error(*short, "--rerank")
