"""Arguments of the wrong type are rejected by name, not with an error from inside Python."""

import numpy as np
import pytest

import keras_bert_d2l as kb


@pytest.fixture(scope="module")
def models(words_bert, words_tokenizer):
    return {
        "bert": words_bert,
        "tokenizer": words_tokenizer,
    }


def test_the_model_must_be_a_model_or_a_checkpoint(models, tmp_path):
    for ask in (
        lambda model: kb.fill_mask(model, "[MASK]", tokenizer=models["tokenizer"]),
        lambda model: kb.embed(model, "cat"),
        lambda model: kb.classify(model, "cat"),
        lambda model: kb.answer(model, "cat", "dog"),
    ):
        with pytest.raises(FileNotFoundError, match="no file or folder 'runs/c'"):
            ask("runs/c")
        with pytest.raises(ValueError, match="`model` must be a .*Received: 5. Load one with"):
            ask(5)
    for export in (kb.export_saved_model, kb.export_onnx):
        for model in ("runs/c", 5):
            with pytest.raises(ValueError, match=f"`model` must be a .*Received: {model!r}. Load"):
                export(model, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_model_whose_outputs_are_nan_is_rejected(words_bert, words_tokenizer):
    classifier = kb.SequenceClassifier(words_bert, ["a", "b"], tokenizer=words_tokenizer)
    classifier.head.bias.assign([0.0, np.nan])
    with pytest.raises(ValueError, match="`model` must have finite outputs. Received: .* NaN"):
        kb.classify(classifier, "cat")


def test_folders_tokenizers_and_numbers_have_the_right_type(models, tmp_path):
    bert = models["bert"]
    for export in (kb.export_saved_model, kb.export_onnx):
        with pytest.raises(ValueError, match="`path` must be a path. Received: path=5"):
            export(bert, 5)
        with pytest.raises(ValueError, match="`tokenizer` must be a `Tokenizer`.*Received: 5"):
            export(bert, tmp_path, tokenizer=5)
    with pytest.raises(ValueError, match="must be a `Tokenizer`.*Received: 'vocab.txt'"):
        kb.fill_mask(bert, "[MASK]", tokenizer="vocab.txt")
    for ask in (kb.fill_mask, kb.pseudo_perplexity, kb.embed):
        with pytest.raises(ValueError, match="`batch_size` must be an integer of at least 1"):
            ask(bert, "[MASK] cat", batch_size="8")
