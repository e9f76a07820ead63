"""Heads that a checkpoint lacks are random, so no function may treat them as trained."""

import json

import keras
import numpy as np
import pytest

import keras_bert_d2l as kb
from tests.checkpoints.small import drop_weights

pytestmark = pytest.mark.slow

LABELS = {"mlm": np.array([[5, 6]]), "nsp": np.array([1])}
BATCH = {
    "tokens": np.array([[2, 5, 6, 3]]),
    "segments": np.zeros((1, 4), "int32"),
    "pred_positions": np.array([[1, 2]]),
}


@pytest.fixture(scope="module")
def folder(saved, tmp_path_factory):
    """A native checkpoint that lacks the MLM head and the next-sentence head."""
    folder = tmp_path_factory.mktemp("missing") / "encoder"
    kb.convert_checkpoint(saved["huggingface"], folder)
    drop_weights(folder, "mlm", "nsp")
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return kb.load_pretrained(folder, verbose=False).model


@pytest.fixture
def trainable(folder):
    return kb.load_pretrained(folder, verbose=False).model


def test_a_model_knows_which_heads_it_lacks(model, models, monkeypatch):
    assert models["book"].missing_heads == frozenset()
    assert models["book"].usable_heads.keys() == {"pooler", "mlm", "nsp"}
    assert model.missing_heads == {"mlm", "nsp"}
    assert model.usable_heads.keys() == {"pooler"}
    monkeypatch.setattr(model, "missing_heads", frozenset({"pooler"}))
    assert model.usable_heads.keys() == {"mlm"}  # the next-sentence head reads the pooler


def test_training_all_heads_makes_them_real(trainable):
    trainable.compile("sgd", run_eagerly=True)
    trainable.evaluate(BATCH, LABELS, verbose=0)
    assert trainable.missing_heads == {"mlm", "nsp"}  # evaluating a head does not train it
    trainable.train_on_batch(BATCH, LABELS)
    assert trainable.missing_heads == frozenset()


@pytest.mark.filterwarnings("ignore:Gradients do not exist")  # for the head without a loss
@pytest.mark.parametrize(("head", "missing"), [("mlm", {"nsp", "pooler"}), ("nsp", {"mlm"})])
def test_training_one_head_makes_only_this_one_real(trainable, head, missing):
    trainable.missing_heads |= {"pooler"}
    losses = {"mlm": None, "nsp": None, head: "sparse_categorical_crossentropy"}
    trainable.compile("sgd", losses, run_eagerly=True)
    trainable.fit(BATCH, LABELS, verbose=0)
    assert trainable.missing_heads == missing


def test_copies_of_a_model_lack_the_same_heads(model, tmp_path):
    model.save(tmp_path / "model.keras")
    for copy in (
        keras.models.load_model(tmp_path / "model.keras"),
        kb.resize_positions(model, 32),
        kb.add_tokens(model, ["dog"]),
    ):
        assert copy.missing_heads == {"mlm", "nsp"}


def test_missing_heads_are_not_written(model, tmp_path):
    kb.save_pretrained(model, tmp_path / "copy")
    again = kb.load_pretrained(tmp_path / "copy", verbose=False).model
    assert again.missing_heads == {"mlm", "nsp"}
    np.testing.assert_array_equal(again(**BATCH)[0], model(**BATCH)[0])


def test_other_formats_have_the_heads_that_are_written(model, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"'book' requires every head.*'mlm', 'nsp'"):
        kb.save_pretrained(model, tmp_path / "book", format="book")
    for missing, architecture in (
        ({"nsp"}, "BertForMaskedLM"),
        ({"mlm"}, "BertForNextSentencePrediction"),
        ({"mlm", "nsp"}, "BertModel"),
    ):
        monkeypatch.setattr(model, "missing_heads", frozenset(missing))
        kb.save_pretrained(model, tmp_path / "hf", format="huggingface")
        fields = json.loads((tmp_path / "hf/config.json").read_text())
        assert fields["architectures"] == [architecture]


def test_predictions_of_a_missing_head_are_refused(model, tmp_path):
    with pytest.raises(ValueError, match="trained 'mlm' head"):
        kb.fill_mask(model, "a [MASK]")
    with pytest.raises(ValueError, match="trained 'nsp' head"):
        kb.next_sentence_score(model, "a b", "a")
    with pytest.raises(ValueError, match=r"lacked \['mlm', 'nsp'\].*export_saved_model"):
        model.export(tmp_path / "export")
