"""Checkpoints of the Model Garden, which `scripts/originals/model_garden.py` wrote, are read."""

import itertools
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.formats import model_garden
from keras_bert_d2l.checkpoints.tensorflow_files import OBJECT_GRAPH
from tests.checkpoints.small import save_tensors

FOLDER = Path(__file__).parent / "originals/model_garden"
# The other models are variants of the first ones.
VARIANTS = ("encoder_v2", "pooled_classifier", "regressor", "two_tags")
PRETRAINED = ("pretraining", "pretrainer_v2", "encoder", "encoder_v2")
LABELED = {
    "classifier": ("SequenceClassifier", ["LABEL_0", "LABEL_1", "LABEL_2"]),
    "pooled_classifier": ("SequenceClassifier", ["LABEL_0", "LABEL_1"]),
    "regressor": ("SequenceRegressor", ["LABEL_0"]),
    "tagger": ("TokenClassifier", ["O", "B-X", "I-X"]),
    "two_tags": ("TokenClassifier", ["LABEL_0", "LABEL_1"]),
    "span_labeler": ("QuestionAnswerer", None),
}


def marked(names):
    return [pytest.param(x, marks=pytest.mark.long) if x in VARIANTS else x for x in names]


def load(name):
    """Return a model, its features, and the outputs of the original."""
    theirs = dict(np.load(FOLDER / name / "outputs.npz"))
    features = {
        "tokens": theirs["input_word_ids"],
        "segments": theirs["input_type_ids"],
        "valid_lens": theirs["input_mask"].sum(1),
    }
    return kb.load_pretrained(FOLDER / name, verbose=0).model, features, theirs


def assert_close(ours, theirs):
    np.testing.assert_allclose(np.asarray(ours), theirs, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", marked(PRETRAINED))
def test_every_output_of_a_pretrained_model_is_that_of_the_original(name):
    model, features, theirs = load(name)
    encoded, mlm, nsp = model(*features.values(), theirs["masked_lm_positions"])
    assert_close(encoded, theirs["sequence_output"])
    if "encoder" in name:
        assert model.missing_heads == {"mlm", "nsp"}
        assert_close(model.hidden(encoded[:, 0]), theirs["pooled_output"])
    else:
        assert not model.missing_heads
        assert_close(mlm, theirs["mlm_logits"])
        assert_close(nsp[:, ::-1], theirs["next_sentence"])  # their column 0 means "is next"


@pytest.mark.slow
@pytest.mark.parametrize("name", marked(LABELED))
def test_every_output_of_a_task_model_is_that_of_the_original(name):
    model, features, theirs = load(name)
    kind, labels = LABELED[name]
    assert type(model).__name__ == kind
    assert labels is None or model.labels == tuple(labels)
    outputs = model(features)
    if labels:
        assert_close(outputs, theirs["logits"])
    else:
        is_token = theirs["input_mask"] == 1
        for part in ("start", "end"):
            assert_close(outputs[part][is_token], theirs[f"{part}_logits"][is_token])


def test_tokens_are_those_of_the_original():
    tokenizer = kb.load_tokenizer(FOLDER / "pretraining")
    tokens = json.loads((FOLDER / "pretraining/tokens.json").read_text())
    assert len(tokens) == 200
    ids = tokenizer.tokenize(list(tokens)).to_list()
    found = [" ".join(tokenizer.vocab.tokens[i] for i in row) for row in ids]
    assert found == list(tokens.values())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pretraining", "Garden .not read: 'pooler_transform/bias', .*; heads: pooler, mlm, nsp"),
        ("encoder", "Garden; 2 blocks, .* missing and freshly initialized: mlm, nsp"),
        ("tagger", r"1,491 weights; TokenClassifier \(labels: O, B-X, I-X\)"),
    ],
)
def test_inspect_reports_what_was_found(name, expected):
    summary, weights = kb.inspect_checkpoint(FOLDER / name)
    assert re.search(expected, summary)
    assert not any("optimizer" in weight.name for weight in weights)


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(FOLDER / "pretraining", tmp_path / "garden")


def change(old, new):
    """Return a function that changes a line of `params.yaml`."""

    def edit(folder):
        file = folder / "params.yaml"
        content = file.read_text()
        assert old in content
        file.write_text(content.replace(old, new, 1))

    return edit


def text(content):
    return lambda folder: (folder / "params.yaml").write_text(content)


def variables(*names):
    """Return a function that replaces the checkpoint by one of other variables."""

    def write(folder):
        found = [tf.Variable([[1.0]], name=name) for name in names]
        tf.train.Checkpoint(found=found).write(str(folder / "ckpt-1"))

    return write


def delete(name):
    return lambda folder: (folder / name).unlink()


def test_the_mlm_head_has_an_activation_of_its_own(folder):
    change("hidden_activation: gelu", "hidden_activation: relu")(folder)
    change("mlm_activation: gelu", "name: null")(folder)  # it is the default
    config = model_garden.describe(folder).config
    assert (config.activation, config.mlm_activation) == ("relu", "gelu_tanh")


@pytest.mark.parametrize(("used", "lowercase"), [("/v.txt", False), ("''", True)])
def test_the_casing_is_that_of_the_task_if_it_used_a_vocabulary(folder, used, lowercase):
    of_data = f"train_data:\n    vocab_file: {used}\n    lower_case: false"
    change("train_data:", of_data)(folder)
    assert model_garden.describe(folder).tokenizer_options == {"lowercase": lowercase}


WORDS, HEAD = "word_embeddings/embeddings", "predictions/transform/logits/kernel"
PAIRS = itertools.pairwise("abcdefghi")
BOMB = "a: &a [x]\n" + "".join(f"{y}: &{y} [{f'*{x},' * 9}]\n" for x, y in PAIRS)
HOSTILE = {
    "another activation": (change("hidden_activation: gelu", "hidden_activation: swish"), "swish"),
    "another activation of the head": (
        change("mlm_activation: gelu", "mlm_activation: swish"),
        "mlm_activation.*swish",
    ),
    "a head of the last token": (change("cls_token_idx: 0", "cls_token_idx: 8"), "cls_heads"),
    "heads that are a number": (text("model: {cls_heads: 7, encoder: {bert: {}}}"), "cls_heads"),
    "a number as field": (change("vocab_size: 30", "7: 1\n        norm_type: rms"), "norm_type"),
    "a list as size": (change("hidden_size: 8", "hidden_size: [8]"), "hidden_size"),
    "a text as size": (change("hidden_size: 8", "hidden_size: '8'"), "num_hiddens='8'"),
    "other heads": (change("attention_heads: 2", "attention_heads: 4"), "not match its config"),
    "a million blocks": (change("num_layers: 2", "num_layers: 1000000"), "num_blks=1000000"),
    "another vocabulary": (
        change("vocab_size: 30", "vocab_size: 31"),
        r"\(30, 8\) instead of \(31",
    ),
    "a list": (text("- task"), "params"),
    "no mapping": (text("task: 3"), "task"),
    "code": (text("!!python/object/apply:os.system ['touch hacked']"), "not a YAML file"),
    "deep nesting": (text("[" * 500), "not a YAML file"),
    "a bomb": (text(BOMB + "task: {model: {encoder: {bert: {hidden_size: *i}}}}"), "hidden_size"),
    "a mapping in itself": (text("task: &a {model: {encoder: *a}}"), "model"),
    "a huge file": (text("#" * 2**21), "has 2,097,152"),
    "another program": (variables("mine"), "no BERT of the Model Garden. It contains 'mine'"),
    "two heads": (variables(WORDS, f"a/{HEAD}", f"b/{HEAD}"), "contains several"),
    "two encoders": (variables(f"a/{WORDS}", f"b/{WORDS}"), "contains several"),
    "no configuration": (delete("params.yaml"), "no params.yaml or bert_config"),
    "no data": (delete("ckpt-1.data-00000-of-00001"), "data-00000-of-00001"),
    "a damaged index": (lambda x: (x / "ckpt-1.index").write_bytes(b"x"), "ckpt-1. cannot be read"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_folder_is_refused(kind, folder, monkeypatch):
    make, match = HOSTILE[kind]
    monkeypatch.chdir(folder)
    make(folder)
    with pytest.raises((ValueError, FileNotFoundError), match=match) as error:
        kb.load_pretrained(folder, verbose=0)
    assert str(folder) in str(error.value)
    assert len(str(error.value)) < 700
    assert not Path("hacked").exists()


@pytest.mark.parametrize("labels", ["[O]", "[1, 2, 3]"])
def test_labels_are_checked(labels, tmp_path):
    folder = shutil.copytree(FOLDER / "tagger", tmp_path / "tagger")
    change("[O, B-X, I-X]", labels)(folder)
    with pytest.raises(ValueError, match="tagger.*labels"):
        kb.load_pretrained(folder)


def test_a_head_that_could_be_of_any_task_is_not_read_and_reported(tmp_path):
    """Old versions did not track attributes of models such as `span_labeling`."""
    folder = shutil.copytree(FOLDER / "span_labeler", tmp_path / "old")
    reader = tf.train.load_checkpoint(str(folder))
    stored = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    stored[OBJECT_GRAPH] = stored[OBJECT_GRAPH].replace(b"span_labeling", b"not_tracked_1")
    save_tensors(folder / "ckpt-1", stored)
    summary, _ = kb.inspect_checkpoint(folder)
    assert re.search("not read: 'predictions/transform/logits/bias', .*heads: pooler;", summary)
