import numpy as np
import pytest

from keras_bert_d2l import BERTModel, TextEmbedder
from keras_bert_d2l.inference.heads import next_sentence_score

A = ["the cat sat", "good", "the dog ran on the rug", "bad"]
B = ["on the mat", "bad dogs", "good", "the cat sat on the rug"]


@pytest.mark.slow
def test_a_score_is_the_softmax_of_the_second_logit_for_any_batch_size(words_bert, words_tokenizer):
    expected = []
    for a, b in zip(A, B, strict=True):
        _, _, logits = words_bert(**words_tokenizer(a, b))
        odds = np.exp(logits[0])
        expected.append(odds[1] / odds.sum())
    assert np.std(expected) > 5e-4  # the pairs differ
    for batch_size in (1, 3, 32):
        scores = next_sentence_score(words_bert, A, B, batch_size=batch_size)
        assert scores.dtype == np.float32
        np.testing.assert_allclose(scores, expected, atol=1e-6)
    one = next_sentence_score(words_bert, A[3], B[3])
    assert isinstance(one, float)
    assert one == pytest.approx(expected[3], abs=1e-6)
    assert next_sentence_score(words_bert, [], []).shape == (0,)


def test_models_without_the_head_and_unpaired_texts_are_rejected(words_bert, words_tokenizer):
    def scores(a, b, model=words_bert):
        return next_sentence_score(model, a, b, tokenizer=words_tokenizer)

    with pytest.raises(ValueError, match="a list of 2 and a list of 1"):
        scores(["good", "bad"], ["good"])
    with pytest.raises(ValueError, match="Received: one text and a list of 1"):
        scores("good", ["good"])
    with pytest.raises(ValueError, match="at most 16 tokens.*18 tokens in 'bad bad"):
        scores(["good", "bad " * 7], ["good", "good " * 8])
    with pytest.raises(ValueError, match=r"18 tokens in 'bad \| good good"):
        scores("bad", "good " * 14)
    headless = BERTModel(len(words_tokenizer.vocab), 8, 16, 2, 1, 0.0, 16, next_sentence=False)
    with pytest.raises(ValueError, match="next_sentence=False"):
        scores("good", "bad", headless)
    with pytest.raises(ValueError, match="a TextEmbedder; it is for a different task"):
        scores("good", "bad", TextEmbedder(words_bert))
