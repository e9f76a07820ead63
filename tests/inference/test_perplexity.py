import json
import lzma
import math

import keras
import numpy as np
import pytest

from keras_bert_d2l import BERTModel, TextEmbedder, minimal_pairs
from keras_bert_d2l.inference.perplexity import (
    Perplexity,
    joint_perplexity,
    pseudo_log_likelihoods,
    pseudo_perplexity,
)

TEXTS = ["the cat sat on the mat", "dogs", "the [MASK] ran badly .", "good good dog"]
COUNTS = [6, 2, 5, 3]


def plain_loop(model, tokenizer, text):
    """Add up the log probabilities of one text, one token at a time."""
    [ids] = tokenizer(text)["tokens"].numpy()
    vocab = tokenizer.vocab
    places = np.flatnonzero(~np.isin(ids, (vocab.cls_id, vocab.sep_id, vocab.mask_id)))
    copies = np.tile(ids, (len(places), 1))
    for copy, place in zip(copies, places, strict=True):
        copy[place] = vocab.mask_id
    _, logits, _ = model(copies, np.zeros_like(copies), pred_positions=places[:, None])
    logits = np.asarray(logits, "float64")[:, 0]
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return sum(log[token] for log, token in zip(logs, ids[places], strict=True))


@pytest.mark.slow
def test_perplexity_matches_a_plain_loop_over_all_tokens(words_bert, words_tokenizer):
    expected = []
    for text, count in zip(TEXTS, COUNTS, strict=True):
        mean = plain_loop(words_bert, words_tokenizer, text) / count
        expected.append(Perplexity(pytest.approx(math.exp(-mean), rel=1e-5), count))
    assert pseudo_perplexity(words_bert, TEXTS, batch_size=3) == expected
    assert pseudo_perplexity(words_bert, TEXTS[1]) == expected[1]


def test_a_uniform_model_has_the_perplexity_of_its_vocabulary_size(words_tokenizer):
    size = len(words_tokenizer.vocab)
    model = BERTModel(size, 8, 16, 2, 1, 0.0, 16, next_sentence=False)
    for weight in model.mlm.mlp.layers[-1].weights:
        weight.assign(np.zeros(weight.shape))
    found = pseudo_perplexity(model, TEXTS, tokenizer=words_tokenizer)
    assert found == [Perplexity(pytest.approx(size, rel=1e-5), count) for count in COUNTS]


def test_joint_perplexity_weights_each_token_equally():
    joint = joint_perplexity([Perplexity(2.0, 3), Perplexity(16.0, 1)])
    assert joint == Perplexity(pytest.approx(2 ** (7 / 4)), 4)
    with pytest.raises(ValueError, match="Received: none"):
        joint_perplexity([])
    assert joint_perplexity([Perplexity(math.inf, 1)]).perplexity == math.inf


def test_texts_without_predictable_tokens_are_rejected(words_bert):
    assert pseudo_perplexity(words_bert, []) == []
    for text in ("", "[MASK]"):
        with pytest.raises(ValueError, match="have a token to predict"):
            pseudo_perplexity(words_bert, ["good", text])
    with pytest.raises(ValueError, match="at most 16 tokens.*17 tokens in 'good good"):
        pseudo_perplexity(words_bert, ["good", "good " * 15], truncate=False)
    with pytest.raises(ValueError, match="Received: a TextEmbedder"):
        pseudo_perplexity(TextEmbedder(words_bert), "good")


SENTENCES = [
    ("the cat sat on the mat", "the cat sat the on mat", "order"),
    ("the cats sat", "the catsly sat", "suffix"),
    ("good dogs ran", "good dogs ran", "suffix"),
    ("the dog ran badly", "the dogsly ran badly on the rug", "order"),
]
PAIRS = [{"sentence_good": a, "sentence_bad": b, "UID": uid} for a, b, uid in SENTENCES]


@pytest.mark.slow
def test_the_scores_are_those_of_a_plain_loop(words_bert, words_tokenizer):
    expected = [
        [plain_loop(words_bert, words_tokenizer, text) for text in pair[:2]] for pair in SENTENCES
    ]
    found = minimal_pairs(words_bert, PAIRS, batch_size=5)
    np.testing.assert_allclose(found.scores, expected, rtol=1e-5)
    is_right = [good > bad for good, bad in expected]
    assert found.scores[2, 0] == found.scores[2, 1]  # in different batches
    assert not is_right[2]  # a tie is wrong
    assert found.accuracy == np.mean(is_right)
    assert found.by_uid == {
        "order": np.mean([is_right[0], is_right[3]]),
        "suffix": np.mean(is_right[1:3]),
    }


def test_files_and_lists_have_the_same_pairs(words_bert, tmp_path):
    path = tmp_path / "pairs.jsonl.xz"
    with lzma.open(path, "wt") as file:
        file.writelines(json.dumps(pair | {"field": "syntax"}) + "\n" for pair in PAIRS)
    columns = {name: [pair[name] for pair in PAIRS] for name in PAIRS[0]}
    found = minimal_pairs(words_bert, path)
    assert found.num_pairs == len(PAIRS)
    np.testing.assert_array_equal(found.scores, minimal_pairs(words_bert, columns).scores)
    without_uid = [{**pair, "UID": None} for pair in PAIRS]
    assert minimal_pairs(words_bert, without_uid).by_uid == {}


def test_batches_of_equal_lengths_have_no_padding(words_bert, words_tokenizer, monkeypatch):
    shapes = []
    predict = BERTModel.predict_on_batch
    monkeypatch.setattr(
        BERTModel,
        "predict_on_batch",
        lambda self, x: shapes.append(x["tokens"].shape) or predict(self, x),
    )
    texts = ["the cat sat", "the dog sat", "the dog sat on the rug", "the cat sat"]
    pseudo_log_likelihoods(words_bert, words_tokenizer, texts, batch_size=6)
    # Two batches are computed side by side. JAX compiles for lengths of 8, 16, ... only.
    assert sorted(shapes) == [(6, 5 if keras.backend.backend() == "tensorflow" else 8), (6, 8)]


def test_wrong_pairs_are_rejected(words_bert, tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "texts.jsonl").write_text('{"sentence_good": "a"}\n')
    (tmp_path / "header.csv").write_text("sentence_good,sentence_bad,UID\n")
    for pairs, message in (
        (tmp_path / "header.csv", "header.csv' has none"),
        (tmp_path / "empty.jsonl", "empty.jsonl' is empty"),
        (tmp_path / "texts.jsonl", "line 1: a pair must have .*Received: sentence_bad=None"),
        ([PAIRS[0], {"sentence_good": " ", "sentence_bad": "a"}], "line 2: .*sentence_good=' '"),
        (["the cat"], "sentence_good=None"),
        ([PAIRS[0], PAIRS[0] | {"sentence_bad": "a \ud83d"}], "line 2: .*half of a surrogate"),
        ([], "is empty"),
        (3, "`pairs` must be a path.*Received: pairs=3"),
        ({"sentence_good": ["a"], "sentence_bad": []}, "`pairs` must be columns of equal"),
        ([PAIRS[0] | {"sentence_bad": "good " * 15}], "at most 16 tokens"),
    ):
        with pytest.raises(ValueError, match=message):
            minimal_pairs(words_bert, pairs, truncate=False)
