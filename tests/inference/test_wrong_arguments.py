"""Arguments of the wrong type are rejected by name, not with an error from inside Python."""

import numpy as np
import pytest

from keras_bert_d2l import (
    QuestionAnswerer,
    SequenceClassifier,
    TokenClassifier,
    answer,
    classify,
    embed,
    evaluate,
    export_onnx,
    export_saved_model,
    extract_features,
    fill_mask,
    next_sentence_score,
    pseudo_perplexity,
    similar,
    tag,
)


@pytest.fixture(scope="module")
def models(words_bert, words_tokenizer):
    return {
        "bert": words_bert,
        "tokenizer": words_tokenizer,
        "classifier": SequenceClassifier(words_bert, ["a", "b"], tokenizer=words_tokenizer),
        "tagger": TokenClassifier(words_bert, ["a", "b"], tokenizer=words_tokenizer),
        "answerer": QuestionAnswerer(words_bert, tokenizer=words_tokenizer),
    }


def test_the_model_must_be_a_model_or_a_checkpoint(models, tmp_path):
    for ask in (
        lambda model: fill_mask(model, "[MASK]", tokenizer=models["tokenizer"]),
        lambda model: embed(model, "cat"),
        lambda model: classify(model, "cat"),
        lambda model: answer(model, "cat", "dog"),
    ):
        with pytest.raises(FileNotFoundError, match="no file or folder 'runs/c'"):
            ask("runs/c")
        message = "`model` must be a .*Received: 5; load a checkpoint with `load_pretrained"
        with pytest.raises(ValueError, match=message):
            ask(5)
    for export in (export_saved_model, export_onnx):
        for model in ("runs/c", 5):
            with pytest.raises(ValueError, match=f"`model` must be a .*Received: {model!r}; load"):
                export(model, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "ask",
    [
        lambda bert, **_: fill_mask("the [MASK]", bert),
        lambda bert, **_: pseudo_perplexity(["cat"], bert),
        lambda bert, **_: next_sentence_score("cat", "dog", bert),
        lambda bert, **_: extract_features(["cat"], bert),
        lambda bert, **_: embed("cat", bert),
        lambda bert, **_: similar("cat", ["dog"], bert),
        lambda classifier, **_: classify(["cat"], classifier),
        lambda classifier, **_: evaluate("cats.tsv", classifier),
        lambda tagger, **_: tag("cat", tagger),
        lambda answerer, **_: answer("cat", "dog", answerer),
        lambda **_: classify(["cat"], "runs/c"),
    ],
)
def test_a_model_behind_the_texts_is_told_where_it_belongs(ask, models):
    with pytest.raises(ValueError, match="The model must be the first argument.*Received: model="):
        ask(**models)


def test_a_model_whose_outputs_are_nan_is_rejected(words_bert, words_tokenizer):
    classifier = SequenceClassifier(words_bert, ["a", "b"], tokenizer=words_tokenizer)
    classifier.head.bias.assign([0.0, np.nan])
    with pytest.raises(ValueError, match="`model` must have finite outputs. Received: .* NaN"):
        classify(classifier, "cat")


def test_folders_tokenizers_and_numbers_have_the_right_type(models, tmp_path):
    bert = models["bert"]
    for export in (export_saved_model, export_onnx):
        with pytest.raises(ValueError, match="`path` must be a path. Received: path=5"):
            export(bert, 5)
        with pytest.raises(ValueError, match="`tokenizer` must be a `Tokenizer`.*Received: 5"):
            export(bert, tmp_path, tokenizer=5)
    with pytest.raises(ValueError, match="must be a `Tokenizer`.*Received: 'vocab.txt'"):
        fill_mask(bert, "[MASK]", tokenizer="vocab.txt")
    for ask in (fill_mask, pseudo_perplexity, embed):
        with pytest.raises(ValueError, match="`batch_size` must be an integer of at least 1"):
            ask(bert, "[MASK] cat", batch_size="8")
