"""Embeddings with more rows than the vocabulary has tokens, or with fewer rows, are loaded.

The expected values are those of the same model without the additional rows, which would be
predicted everywhere if they could be.
"""

import dataclasses
import shutil

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.signatures.signature import TextOptions
from keras_bert_d2l.signatures.signatures import model_signatures
from tests.checkpoints import small
from tests.checkpoints.small import OF_FORMAT, VOCAB, assert_same_weights
from tests.nightly import nightly_except

TEXTS = ["a [MASK] b", "[MASK] bc [MASK]"]
DECODER, BIAS = "cls.predictions.decoder", "cls.predictions.bias"
ROWS = {"bert.embeddings.word_embeddings.weight": 3, f"{DECODER}.weight": 3, BIAS: 50}


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def plain(request, tmp_path_factory):
    """A model with one row per token, and its folder."""
    model = small.random_model(
        dataclasses.replace(OF_FORMAT["huggingface"], tie_embeddings=request.param)
    )
    model.tokenizer = kb.Tokenizer(VOCAB)
    folder = tmp_path_factory.mktemp("rows") / "plain"
    kb.save_pretrained(model, folder, format="huggingface")
    return model, folder


def padded(folder, path, rows):
    """Copy a folder, and add rows up to a number."""

    def longer(name, weight):
        added = {**ROWS, f"{DECODER}.bias": 50}.get(name)
        shape = (0 if added is None else rows - len(VOCAB), *weight.shape[1:])
        return np.concatenate([weight, np.full(shape, added or 0, "float32")])

    shutil.copytree(folder, path)
    small.edit_config(path, vocab_size=rows)
    small.edit_weights(path, lambda weights: {name: longer(name, x) for name, x in weights.items()})
    return path


def predictions(model):
    found = [kb.fill_mask(model, text, top_k=len(VOCAB)) for text in TEXTS]
    flat = [one for masks in found for mask in masks for one in mask]
    return [one.token for one in flat], [one.score for one in flat]


@pytest.mark.slow
@pytest.mark.parametrize("rows", nightly_except({64}, [9, 64]))
def test_rows_without_a_token_are_never_predicted(rows, plain, tmp_path, capsys):
    model, found = plain[0], kb.load_pretrained(padded(plain[1], tmp_path / "more", rows)).model
    assert f"; {rows - 8} more rows of the embedding are never predicted" in capsys.readouterr().out
    (tokens, scores), (found_tokens, found_scores) = map(predictions, (model, found))
    assert found_tokens == tokens
    np.testing.assert_allclose(found_scores, scores, atol=1e-6)
    assert kb.pseudo_perplexity(found, "a bc") == pytest.approx(kb.pseudo_perplexity(model, "a bc"))
    signatures = model_signatures(found, found.tokenizer, TextOptions(False, 8, None))
    answer = signatures["fill_mask"].function(tf.constant(TEXTS[:1]))
    assert [token.decode() for token in np.ravel(answer["tokens"])] == tokens[:8]
    larger, expected = (kb.add_tokens(one, ["abc"]) for one in (found, model))
    assert_same_weights(larger, expected)


def test_saving_keeps_the_rows(plain, tmp_path):
    folder, saved, native = (tmp_path / name for name in ("padded", "saved", "native"))
    found = kb.load_pretrained(padded(plain[1], folder, 16), verbose=False).model
    kb.save_pretrained(found, native)
    kb.convert_checkpoint(native, saved, "huggingface")
    assert kb.load_pretrained(native, verbose=False).config == found.bert_config
    assert (saved / "vocab.txt").read_bytes() == (folder / "vocab.txt").read_bytes()
    one, other = (safetensors.numpy.load_file(x / "model.safetensors") for x in (folder, saved))
    assert all(np.array_equal(one[name], other[name]) for name in {**one, **other})


UNUSED = [(["[unused98]", "[unused99]"], True), (["[line 9]"], True), (["[unused0]", "c"], False)]


@pytest.mark.parametrize(
    ("tokens", "are_unused"), [*UNUSED, (["<unk>NOTUSED"], True), (["[unused]"], False)]
)
def test_only_unused_tokens_may_lack_a_row(tokens, are_unused, plain, tmp_path, capsys):
    folder = shutil.copytree(plain[1], tmp_path / "more")
    for name in ("SHA256SUMS", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    kb.Vocab([*VOCAB.tokens, *tokens]).to_file(folder / "vocab.txt")
    if are_unused:
        found = kb.load_pretrained(folder)
        assert f"without {len(tokens)} unused tokens at the end" in capsys.readouterr().out
        assert found.tokenizer.vocab.tokens == VOCAB.tokens
    else:
        with pytest.raises(ValueError, match="the vocabulary has .* tokens, but the configuration"):
            kb.load_pretrained(folder)
