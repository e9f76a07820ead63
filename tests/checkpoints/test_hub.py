"""Checkpoints are downloaded by name, by the real client from a server on this machine."""

import json
import os
import pathlib
import shutil
import sys
import zipfile

import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.location import SHORT_NAMES, find_checkpoint, is_remote
from tests.checkpoints.sbert_folders import LOWER, write
from tests.checkpoints.small import (
    OF_FORMAT,
    VOCAB,
    assert_same_weights,
    random_model,
)

LABELS = ["O", "B-LOC", "I-LOC"]
NAME = "someone/tiny-bert"
TORCH_FILES = pathlib.Path(__file__).parent / "torch_files"
TENSORFLOW_FILES = pathlib.Path(__file__).parent / "formats/originals/tf_model_h5.zip"
PRESETS = pathlib.Path(__file__).parent / "formats/originals/kerashub"
TOKENIZER_FILES = {
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "special_tokens_map.json",
}
NEEDED = {"config.json", "model.safetensors", *TOKENIZER_FILES}


@pytest.fixture(scope="module")
def folder(saved, tmp_path_factory):
    """A folder that `save_pretrained` wrote for Hugging Face, with files of other programs."""
    folder = shutil.copytree(saved["huggingface"], tmp_path_factory.mktemp("hub") / "bert")
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    (folder / "tf_model.h5").write_bytes(b"a file of HDF5")
    (folder / "onnx").mkdir()
    (folder / "onnx/model.onnx").write_bytes(b"a graph")
    return folder


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    """A model that tags, and its folder for Hugging Face."""
    model = kb.TokenClassifier(random_model(OF_FORMAT["huggingface"]), LABELS)
    model.tokenizer = kb.Tokenizer(VOCAB)
    folder = tmp_path_factory.mktemp("hub") / "tagger"
    kb.save_pretrained(model, folder, format="huggingface")
    return model, folder


@pytest.fixture
def model(local_hub, folder):
    """The id of a model on the local hub."""
    local_hub.add(NAME, folder)
    return NAME


def test_a_model_is_loaded_by_its_id_and_only_needed_files_are_downloaded(
    model, models, local_hub, monkeypatch, capsys
):
    downloaded = kb.load_pretrained(model)
    assert_same_weights(downloaded.model, models["huggingface"])
    assert downloaded.tokenizer.vocab == VOCAB
    assert local_hub.downloaded() == NEEDED
    assert capsys.readouterr().out.startswith(f"{NAME}: Hugging Face BertForPreTraining;")
    local_hub.requests.clear()  # a second load downloads nothing and works without the hub
    find_checkpoint(model)
    assert local_hub.downloaded() == set()
    local_hub.requests.clear()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    find_checkpoint(model)
    assert local_hub.requests == []


def test_a_tokenizer_is_loaded_by_its_id_without_the_weights(local_hub, tmp_path):
    tokenizer = kb.Tokenizer(kb.Vocab([*VOCAB, "[E1]"]), special_tokens=["[E1]"])
    kb.save_tokenizer(tokenizer, tmp_path / "tokenizer")
    (tmp_path / "tokenizer" / "model.safetensors").write_bytes(b"not read")
    local_hub.add(NAME, tmp_path / "tokenizer")
    assert kb.load_tokenizer(NAME).options == tokenizer.options
    assert local_hub.downloaded() == TOKENIZER_FILES


def test_a_model_of_sentencepiece_is_loaded_by_its_id_with_its_config(local_hub, tmp_path):
    model = pathlib.Path(__file__).parents[1] / "text/tokenizer/unigram/spiece.model"
    (tmp_path / "spiece.model").write_bytes(model.read_bytes())
    (tmp_path / "config.json").write_text('{"model_type": "albert"}')
    local_hub.add(NAME, tmp_path)
    assert kb.load_tokenizer(NAME).vocab.kind == "unigram"


def test_a_preset_of_kerashub_is_loaded_by_its_name_with_hf(local_hub, tmp_path):
    with zipfile.ZipFile(PRESETS / "classifier_linear.zip") as archive:
        archive.extractall(tmp_path)
    for other in ("README.md", "audio_converter.json", "model.tflite"):
        (tmp_path / other).write_text("not read")
    local_hub.add(NAME, tmp_path)
    assert kb.load_tokenizer(f"hf://{NAME}").options["strip_accents"]
    tokenizer = {"tokenizer.json", "assets/tokenizer/vocabulary.txt", "metadata.json"}
    tokenizer.add("config.json")
    assert local_hub.downloaded() == tokenizer
    assert isinstance(kb.load_pretrained(f"hf://{NAME}@main").model, kb.SequenceClassifier)
    configs = {"task.json", "preprocessor.json"}
    assert local_hub.downloaded() == {*tokenizer, *configs, "model.weights.h5", "task.weights.h5"}
    assert find_checkpoint(NAME) == find_checkpoint(f"hf://{NAME}")


def test_a_short_name_stands_for_an_id(folder, local_hub):
    local_hub.add(SHORT_NAMES["minilm"], folder)
    assert find_checkpoint("minilm").joinpath("config.json").is_file()
    text = (pathlib.Path(__file__).parents[2] / "docs/checkpoints.md").read_text()
    rows = [line.split("|")[1:3] for line in text.splitlines() if line.startswith("| `")]
    listed = [(name.strip(" `"), repo.strip(" `")) for name, repo in rows]
    assert set(SHORT_NAMES.items()) <= set(listed)
    assert all(map(is_remote, SHORT_NAMES.values()))


@pytest.mark.parametrize(
    ("name", "own", "queries", "documents"),
    [
        ("bge-small", {}, "Represent this sentence for searching relevant passages: ", ""),
        ("BAAI/bge-large-en", {"query": "find: "}, "find: ", ""),
        ("hf://intfloat/e5-large-v2@main", {"query": ""}, "query: ", "passage: "),
        ("e5-base-multilingual", {}, "query: ", "passage: "),
        ("minilm", {}, "", ""),
    ],
)
def test_a_known_model_has_its_prompts_if_its_folder_names_none(
    name, own, queries, documents, model, local_hub, tmp_path
):
    repo = name.removeprefix("hf://").partition("@")[0]
    embedder = kb.TextEmbedder(kb.load_pretrained(model).model, prompts=own)
    kb.save_pretrained(embedder, tmp_path / "hub", format="huggingface")
    local_hub.add(SHORT_NAMES.get(repo, repo), tmp_path / "hub")
    found = kb.TextEmbedder.from_pretrained(name)
    assert (found.prompt("query"), found.prompt("document")) == (queries, documents)
    assert found.prompt() == ""
    kb.save_pretrained(found, tmp_path / "saved")
    assert kb.load_pretrained(tmp_path / "saved").model.prompts == found.prompts


def test_the_weights_of_dense_modules_are_downloaded(model, local_hub, tmp_path):
    steps = [{"units": 3, "activation": "tanh", "use_bias": True}]
    embedder = kb.TextEmbedder(kb.load_pretrained(model).model, ("cls", "max"), steps=steps)
    kb.save_pretrained(embedder, tmp_path / "embedder", format="huggingface")
    local_hub.add("leaf/one", tmp_path / "embedder")
    given = kb.embed("leaf/one", ["a cat"])
    np.testing.assert_allclose(given, kb.embed(embedder, ["a cat"]), atol=1e-6)


def test_a_revision_follows_the_name(model, folder, tagger, local_hub):
    commit = local_hub.add(model, tagger[1], "v2")
    local_hub.add(model, tagger[1], "refs/pr/1")
    for revision, architecture in (
        ("@v2", "BertForTokenClassification"),
        (f"@{commit}", "BertForTokenClassification"),
        ("@refs/pr/1", "BertForTokenClassification"),
        ("", "BertForPreTraining"),
    ):
        fields = json.loads((find_checkpoint(model + revision) / "config.json").read_text())
        assert fields["architectures"] == [architecture]


@pytest.mark.parametrize("kind", ["zip", "shards"])
def test_files_of_pytorch_are_downloaded_if_there_are_no_safetensors(kind, local_hub, monkeypatch):
    local_hub.add("someone/old", TORCH_FILES / f"bert-{kind}")
    assert kb.load_pretrained("someone/old").model.missing_heads == set()
    assert local_hub.downloaded() == set(os.listdir(TORCH_FILES / f"bert-{kind}"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert find_checkpoint("someone/old").is_dir()


def test_a_model_without_weights_is_an_error(model, local_hub, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "model.onnx").write_bytes(b"other weights")
    local_hub.add("someone/empty", tmp_path)
    with pytest.raises(ValueError, match="neither model.safetensors nor .* nor tf_model.h5.*@refs"):
        kb.load_pretrained("someone/empty")
    assert "model.onnx" not in local_hub.downloaded()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classification", "shards"])
def test_files_of_tensorflow_are_downloaded_if_there_are_no_others(kind, local_hub, tmp_path):
    zipfile.ZipFile(TENSORFLOW_FILES).extractall(tmp_path)
    local_hub.add("someone/old", tmp_path / kind)
    assert kb.load_pretrained("someone/old").config.num_blks == 2
    assert local_hub.downloaded() == set(os.listdir(tmp_path / kind))


def test_a_local_path_takes_precedence(model, folder, local_hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder, model)
    kb.inspect_checkpoint(model)
    shutil.move("someone", "minilm")
    kb.inspect_checkpoint("minilm/tiny-bert")
    with pytest.raises(FileNotFoundError, match="'minilm' is not a checkpoint"):
        kb.load_pretrained("minilm")
    os.makedirs("google")
    for ending in ("index", "data-00000-of-00001"):
        open(f"google/bert_model.ckpt.{ending}", "w").close()
    assert not is_remote("google/bert_model.ckpt")
    open("bert-tiny.txt", "w").close()
    assert is_remote("bert-tiny")
    assert local_hub.requests == []


@pytest.mark.parametrize("path", [*"/a/b ./a ~/a a/b/c a a/b@ . a:b a@main".split(), "a/b c"])
def test_what_looks_like_a_path_is_not_looked_up(path, local_hub):
    assert not is_remote(path)
    for local in (path, pathlib.Path(path), pathlib.Path(NAME)):
        with pytest.raises(FileNotFoundError):
            kb.load_pretrained(local)
    assert local_hub.requests == []


@pytest.mark.parametrize(
    ("name", "reason"), [("runs/mien", "401"), (f"{NAME}@v9", "404"), ("a/b..c", "a/b..c")]
)
def test_a_name_without_a_model_is_an_error_about_the_path_and_the_hub(name, reason, model):
    with pytest.raises(FileNotFoundError, match=rf"folder '{name}', and downloading.*{reason}"):
        kb.load_pretrained(name)


def test_a_failed_download_is_completed_later(model, local_hub):
    local_hub.broken.add("model.safetensors")
    with pytest.raises(FileNotFoundError, match=f"downloading the model '{NAME}' .* failed.*403"):
        kb.load_pretrained(model)
    first = local_hub.downloaded() - local_hub.broken  # the failure stops files not begun
    local_hub.broken.clear()
    local_hub.requests.clear()
    find_checkpoint(model)
    assert "model.safetensors" in local_hub.downloaded()
    assert not first & local_hub.downloaded()


def test_without_a_connection_or_offline_the_error_says_so(model, local_hub, monkeypatch):
    local_hub.close()
    with pytest.raises(FileNotFoundError, match=r"failed.*internet"):
        kb.load_pretrained(model)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(FileNotFoundError, match=r"failed.*offline"):
        kb.load_pretrained(model)


def test_without_the_client_the_error_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    command = r"pip install \"keras-bert-d2l\[hub\]\""
    with pytest.raises(FileNotFoundError, match=rf"no file or folder 'minilm'.*{command}"):
        kb.load_pretrained("minilm")


@pytest.mark.slow
def test_a_new_process_reads_the_environment(fresh_process, local_hub, folder, tmp_path):
    """Finding and downloading a checkpoint does not import TensorFlow."""
    local_hub.add(SHORT_NAMES["bert-tiny"], folder)
    code = """
        import sys
        from keras_bert_d2l.checkpoints.location import find_checkpoint
        print(find_checkpoint("bert-tiny"))
        assert "tensorflow" not in sys.modules
        assert "keras" not in sys.modules
    """
    cache = str(tmp_path / "cache")
    found = fresh_process(
        code, HF_ENDPOINT=local_hub.url, HF_HUB_OFFLINE="0", HF_HUB_CACHE=cache
    ).strip()
    assert found.startswith(cache)
    assert NEEDED == set(os.listdir(found))


@pytest.mark.parametrize("inside", ["", "0_Transformer"])
def test_the_modules_of_an_embedder_are_downloaded(inside, local_hub, tmp_path, capsys):
    folder = write(tmp_path / "old", inside=inside, bert=LOWER, pooling={"pooling_mode": "max"})
    local_hub.add("someone/embedder", folder)
    assert kb.load_tokenizer("someone/embedder").options["lowercase"]
    model = kb.TextEmbedder.from_pretrained("someone/embedder")
    assert (model.pooling, model.normalize, model.tokenizer.options["lowercase"]) == ("max", 1, 1)
    assert "; text embedding: max" in capsys.readouterr().out
