import math

import numpy as np
import pytest

from keras_bert_d2l import BERTModel, TextEmbedder
from keras_bert_d2l.inference.perplexity import (
    Perplexity,
    joint_perplexity,
    pseudo_perplexity,
)

TEXTS = ["the cat sat on the mat", "dogs", "the [MASK] ran badly .", "good good dog"]
COUNTS = [6, 2, 5, 3]


def slow_perplexity(model, tokenizer, text):
    """Compute the perplexity one token at a time, each in its own batch."""
    batch = {name: tensor.numpy() for name, tensor in tokenizer(text).items()}
    logs = []
    for position, token in enumerate(batch["tokens"][0]):
        if token in (tokenizer.vocab.cls_id, tokenizer.vocab.sep_id, tokenizer.vocab.mask_id):
            continue
        masked = batch["tokens"].copy()
        masked[0, position] = tokenizer.vocab.mask_id
        _, logits, _ = model(**{**batch, "tokens": masked}, pred_positions=np.array([[position]]))
        logits = np.asarray(logits, "float64")[0, 0]
        logs.append(logits[token] - np.log(np.exp(logits).sum()))
    return Perplexity(pytest.approx(math.exp(-np.mean(logs)), rel=1e-5), len(logs))


@pytest.mark.slow
def test_perplexity_matches_a_slow_loop_over_all_tokens(words_bert, words_tokenizer):
    expected = [slow_perplexity(words_bert, words_tokenizer, text) for text in TEXTS]
    for batch_size in (1, 3, 32):
        assert pseudo_perplexity(words_bert, TEXTS, batch_size=batch_size) == expected
    assert [one.num_tokens for one in expected] == COUNTS
    assert pseudo_perplexity(words_bert, TEXTS[1]) == expected[1]


def test_a_uniform_model_has_the_perplexity_of_its_vocabulary_size(words_tokenizer):
    size = len(words_tokenizer.vocab)
    model = BERTModel(size, 8, 16, 2, 1, 0.0, 16, next_sentence=False)
    for weight in model.mlm.mlp.layers[-1].weights:
        weight.assign(np.zeros(weight.shape))
    found = pseudo_perplexity(model, TEXTS, tokenizer=words_tokenizer)
    assert found == [Perplexity(pytest.approx(size, rel=1e-5), count) for count in COUNTS]


@pytest.mark.slow
def test_a_batch_has_at_most_batch_size_rows(words_bert, monkeypatch):
    sizes = []
    predict = BERTModel.predict_on_batch
    monkeypatch.setattr(
        BERTModel,
        "predict_on_batch",
        lambda self, x: sizes.append(len(x["tokens"])) or predict(self, x),
    )
    pseudo_perplexity(words_bert, TEXTS, batch_size=5)
    assert sorted(sizes) == [1, 5, 5, 5]  # batches run side by side


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
        pseudo_perplexity(words_bert, ["good", "good " * 15])
    with pytest.raises(ValueError, match="batch_size=0"):
        pseudo_perplexity(words_bert, "good", batch_size=0)
    with pytest.raises(ValueError, match="a TextEmbedder; it is for a different task"):
        pseudo_perplexity(TextEmbedder(words_bert), "good")
