"""`tf_model.h5` of transformers 4, as `scripts/originals/tf_model_h5.py` wrote it."""

import json
import os
import shutil
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

import keras_bert_d2l as kb
from tests.checkpoints.small import outputs_of

ORIGINALS = Path(__file__).parent / "originals/tf_model_h5.zip"
BERT, HEADS = ("last_hidden_state", "pooler_output"), ("mlm", "nsp")
OWN = ("own-functional", "own-main-layer", "own-subclass", "own-whole")
PRETRAINING = ("pretraining", "shards", "safetensors")
BERTS = ("model", "heads-apart", *OWN)
RARE = ("heads-apart", *OWN[1:4], *PRETRAINING[2:], "ktrain-learner", "ktrain-predictor")
TASKS = {
    "classification": kb.SequenceClassifier,
    "ktrain-learner": kb.SequenceClassifier,
    "ktrain-predictor": kb.SequenceClassifier,
    "tagging": kb.TokenClassifier,
    "answering": kb.QuestionAnswerer,
    "choice": kb.MultipleChoice,
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("originals")
    zipfile.ZipFile(ORIGINALS).extractall(folder)
    return folder


@pytest.fixture(scope="module")
def stored(originals):
    return dict(np.load(originals / "outputs.npz"))


@pytest.fixture
def copied(originals, tmp_path):
    """Return a function that copies a folder, to be changed."""
    return lambda kind: shutil.copytree(originals / kind, tmp_path / kind)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.slow) if kind in RARE else kind
        for kind in (*BERTS, *PRETRAINING, "masked-lm", "next-sentence", *TASKS)
    ],
)
def test_outputs_equal_those_of_the_original(kind, originals, stored):
    model = kb.load_pretrained(originals / kind).model
    assert type(model) is TASKS.get(kind, kb.BERTModel)
    found = outputs_of(model, stored)
    renamed = {"masked-lm": "prediction_logits", "next-sentence": "seq_relationship_logits"}
    is_token = stored["attention_mask"] > 0
    names = [name for name in stored if name.startswith(f"{kind}/")]
    for name in names:
        expected, name = stored[name], name.partition("/")[2]
        actual = np.array(found[renamed.get(kind, name)])
        if actual.shape[:2] == is_token.shape:  # what follows the text differs
            actual, expected = actual[is_token], expected[is_token]
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5, err_msg=name)
    assert names
    if isinstance(model, kb.BERTModel):
        lacks = {"pretraining": set(), "masked-lm": set(), "next-sentence": {"mlm"}}
        kind = "pretraining" if kind in PRETRAINING else kind
        assert model.missing_heads == lacks.get(kind, {"mlm", "nsp"})


@pytest.mark.parametrize("kind", ["classification", "ktrain-predictor"])
def test_the_tokens_of_200_texts_equal_those_of_the_original(kind, originals, stored):
    tokenizer = kb.load_tokenizer(originals / kind)
    found = tokenizer.tokenize(stored["texts"].tolist()).to_list()
    expected = [[int(token) for token in ids.split()[1:-1]] for ids in stored["ids"]]
    assert found == expected  # without [CLS] and [SEP]
    assert len(found) == 200


def test_labels_come_along_and_the_pickle_of_ktrain_is_not_read(originals, copied):
    labels = kb.load_pretrained(originals / "classification").model.labels
    assert labels == ("bad", "good", "neither")
    folder = copied("ktrain-predictor")
    (folder / "tf_model.preproc").unlink()
    os.mkfifo(folder / "tf_model.preproc")  # whoever opens it waits forever
    assert kb.load_pretrained(folder).model.labels == ("LABEL_0", "LABEL_1")


@pytest.mark.parametrize("kind", ["classification", "tagging", "answering", "choice"])
def test_the_name_of_the_class_in_the_file_stands_for_that_in_the_configuration(kind, copied):
    """`bert.config` has none for a new model, or that of the model which it was created from."""
    folder = copied(kind)
    expected = kb.inspect_checkpoint(folder)[0]
    fields = json.loads((folder / "config.json").read_text())
    for fields["architectures"] in (["BertForMaskedLM"], ["BertForTokenClassification"], None):
        (folder / "config.json").write_text(json.dumps(fields))
        assert kb.inspect_checkpoint(folder)[0] == expected
    with h5py.File(folder / "tf_model.h5", "r+") as file:
        for layer in file.values():
            for scope in [name for name in layer if name.startswith("tf_bert_for_")]:
                layer.move(scope, "films")
    with pytest.raises(ValueError, match=r"`architectures` must name its class, one of .'BertFor"):
        kb.inspect_checkpoint(folder)


def test_the_layers_of_an_own_model_are_reported(originals):
    summary, _ = kb.inspect_checkpoint(originals / "own-functional")
    assert "BertModel (without the weights of other layers: classifier/classifier/bias:0" in summary
    summary, _ = kb.inspect_checkpoint(originals / "own-whole")
    assert "other layers: model_weights/classifier/classifier/bias:0" in summary
    assert "optimizer" not in summary


def test_other_files_are_preferred(copied):
    folder = copied("safetensors")
    (folder / "tf_model.h5").write_bytes(b"not looked at")
    kb.load_pretrained(folder)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"looked at")
    with pytest.raises(ValueError, match="pytorch_model.bin' is not"):
        kb.load_pretrained(folder)


SCOPE = "tf_bert_for_pre_training"
BLOCK = f"bert/{SCOPE}/bert/encoder/layer_._"
SCALE = f"{BLOCK}0/scale:0"


def another_embedding(file):
    path = f"mlm___cls/{SCOPE}/bert/embeddings/word_embeddings/weight:0"
    file[path][0, 0] = 7


def two_models(file):
    file.copy("bert", file, "other/again")


def keras_bert(file):
    file.clear()
    file["Embedding-Token/Embedding-Token/embeddings:0"] = np.ones((3, 4), "float32")


def wrong_shape(file):
    path = f"{BLOCK}1/output/dense/kernel:0"
    del file[path]
    file[path] = np.ones((8, 8), "float32")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (another_embedding, "word_embeddings/weight:0'.*which must be equal"),
        (two_models, "contains 2 BERTs of transformers"),
        (keras_bert, "contains no BERTs of transformers.*Received: Embedding-Token"),
        (wrong_shape, r"layer.1.output.dense.weight is \(8, 8\) instead of \(8, 16\)"),
        (lambda file: file.pop(f"{BLOCK}1/output"), "lacks weights .*layer.1.output.LayerNorm"),
        (lambda file: file.update({SCALE: np.float32(3)}), "not have: bert.*layer.0.scale"),
        (lambda file: file.update(b=h5py.ExternalLink("x.h5", "/a")), "is a link to"),
    ],
)
def test_a_file_of_another_model_is_refused(change, match, copied):
    folder = copied("pretraining")
    with h5py.File(folder / "tf_model.h5", "r+") as file:
        change(file)
    with pytest.raises(ValueError, match=f"tf_model.h5.*{match}"):
        kb.load_pretrained(folder)
