"""Checkpoints of the Model Garden, which `scripts/originals/model_garden.py` wrote, are read."""

import itertools
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import yaml

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.formats import google, model_garden

FOLDER = Path(__file__).parent / "originals/model_garden"
PRETRAINED = ("pretraining", "pretrainer_v2", "encoder", "encoder_v2")
LABELED = {
    "classifier": ("SequenceClassifier", ["LABEL_0", "LABEL_1", "LABEL_2"]),
    "pooled_classifier": ("SequenceClassifier", ["LABEL_0", "LABEL_1"]),
    "regressor": ("SequenceRegressor", ["LABEL_0"]),
    "tagger": ("TokenClassifier", ["O", "B-X", "I-X"]),
    "two_tags": ("TokenClassifier", ["LABEL_0", "LABEL_1"]),
    "span_labeler": ("QuestionAnswerer", None),
}


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


@pytest.mark.parametrize("name", PRETRAINED)
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


@pytest.mark.parametrize("name", LABELED)
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
        ("pretraining", "BertPretrainerV2 .not read: 'pooler_transform/bias', 'pooler_transform/"),
        (
            "encoder",
            "Model Garden, encoder; 2 blocks, .* missing and freshly initialized: mlm, nsp",
        ),
        (
            "tagger",
            r"BertTokenClassifier .* 1,491 weights; TokenClassifier \(labels: O, B-X, I-X\)",
        ),
        ("span_labeler", "BertSpanLabeler .* QuestionAnswerer"),
    ],
)
def test_inspect_reports_what_was_found(name, expected):
    summary, weights = kb.inspect_checkpoint(FOLDER / name)
    assert re.search(expected, summary)
    assert not any("optimizer" in weight.name for weight in weights)


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(FOLDER / "pretraining", tmp_path / "garden")


def test_the_configuration_may_be_in_the_folder_above_and_names_a_prefix(folder):
    step = folder / "best_ckpt"
    step.mkdir()
    for file in folder.glob("ckpt-1.*"):
        file.rename(step / file.name)
    for path in (step, step / "ckpt-1"):
        assert model_garden.recognizes(path)
        checkpoint = model_garden.describe(path)
        assert checkpoint.arrays.source == str(step / "ckpt-1")
        assert checkpoint.tokenizer_options == {"lowercase": True}


def change(**fields):
    """Return a function that changes fields of a `params.yaml`, given by their paths."""

    def edit(folder):
        file = folder / "params.yaml"
        content = yaml.safe_load(file.read_text())
        for path, value in fields.items():
            *parts, last = path.split("__")
            inner = content
            for part in parts:
                inner = inner[part]
            inner[last] = value
        file.write_text(yaml.safe_dump(content))

    return edit


def text(content):
    return lambda folder: (folder / "params.yaml").write_text(content)


def other_program(folder):
    tf.train.Checkpoint(x=tf.Variable([1.0], name="mine")).write(str(folder / "ckpt-1"))


def two_heads(folder):
    heads = [tf.Variable([[1.0]], name=f"{x}/predictions/transform/logits/kernel") for x in "ab"]
    words = tf.Variable([[1.0]], name="word_embeddings/embeddings")
    tf.train.Checkpoint(words=words, heads=heads).write(str(folder / "ckpt-1"))


def two_encoders(folder):
    words = [tf.Variable([[1.0]], name=f"{x}/word_embeddings/embeddings") for x in "ab"]
    tf.train.Checkpoint(words=words).write(str(folder / "ckpt-1"))


BERT = "task__model__encoder__bert__"
PAIRS = itertools.pairwise("abcdefghi")
BOMB = "a: &a [x]\n" + "".join(f"{y}: &{y} [{f'*{x},' * 9}]\n" for x, y in PAIRS)
HOSTILE = {
    "another encoder": (change(task__model__encoder={"type": "albert", "albert": {}}), "albert"),
    "mobilebert": (change(task__model__encoder={"type": "mobilebert"}), "'bert', 'bert_v2'"),
    "an embedding of another width": (change(**{BERT + "embedding_size": 4}), "embedding_size"),
    "norm first": (change(**{BERT + "norm_first": True}), "norm_first"),
    "another activation": (change(**{BERT + "hidden_activation": "swish"}), "hidden_activation"),
    "another activation of the head": (
        change(task__model__mlm_activation="relu"),
        "mlm_activation",
    ),
    "a head of the last token": (
        change(task__model__cls_heads=[{"cls_token_idx": 8}]),
        "cls_heads",
    ),
    "heads that are a number": (change(task__model__cls_heads=7), "cls_heads"),
    "a list as size": (change(**{BERT + "hidden_size": [8]}), "hidden_size"),
    "a text as size": (change(**{BERT + "hidden_size": "8"}), "hidden_size"),
    "other heads": (change(**{BERT + "num_attention_heads": 4}), "4 heads of size 2"),
    "a million blocks": (change(**{BERT + "num_layers": 10**6}), "num_blks=1000000"),
    "another vocabulary": (change(**{BERT + "vocab_size": 31}), "is .30, 8. instead of .31, 8."),
    "a list": (text("- task"), "params"),
    "no mapping": (text("task: 3"), "task"),
    "code": (text("!!python/object/apply:os.system ['touch hacked']"), "not a YAML file"),
    "deep nesting": (text("[" * 500), "not a YAML file"),
    "a bomb": (text(BOMB + "task: {model: {encoder: {bert: {hidden_size: *i}}}}"), "hidden_size"),
    "a mapping in itself": (text("task: &a {model: {encoder: *a}}"), "model"),
    "a huge file": (text("#" * 2**21), "2,097,152 bytes"),
    "another program": (other_program, "no BERT of the Model Garden. It contains 'mine'"),
    "two heads": (two_heads, "contains several heads"),
    "two encoders": (two_encoders, "contains several BERTs"),
    "no configuration": (lambda x: (x / "params.yaml").unlink(), "no params.yaml or bert_config"),
    "no data": (lambda x: (x / "ckpt-1.data-00000-of-00001").unlink(), "data-00000-of-00001"),
    "a damaged index": (lambda x: (x / "ckpt-1.index").write_bytes(b"x"), "not a readable"),
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


def test_labels_must_be_as_many_as_the_head_has(tmp_path):
    folder = shutil.copytree(FOLDER / "tagger", tmp_path / "tagger")
    change(task__class_names=["O"])(folder)
    with pytest.raises(ValueError, match="class_names.* must be a list of 3 labels"):
        kb.load_pretrained(folder)


def test_a_checkpoint_of_google_research_is_not_recognized(tmp_path):
    config = kb.BERTConfig.preset("tiny", vocab_size=30, num_hiddens=8, ffn_num_hiddens=8)
    kb.save_pretrained(kb.BERTModel.from_bert_config(config), tmp_path / "bert", format="google")
    assert google.recognizes(tmp_path / "bert")
    assert not model_garden.recognizes(tmp_path / "bert")
