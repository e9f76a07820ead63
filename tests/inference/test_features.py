"""`extract_features` gives the encoder's own states, in the order of the texts."""

import itertools

import numpy as np
import pytest

from keras_bert_d2l import BERTModel, extract_features
from keras_bert_d2l.text_arguments import TruncationWarning

TEXTS = ["the cat sat on the mat", "ran", "good dogs sat", "the rug"] * 3


def states_of(bert, tokenizer, text):
    """Return the hidden states of one text, `(L, T, D)`, computed without a batch."""
    states = bert.encoder(**tokenizer([text]), return_hidden_states=True)["hidden_states"]
    return np.stack(states)[:, 0]


@pytest.mark.slow
def test_vectors_are_those_of_the_chosen_layers_without_padding(words_bert, words_tokenizer):
    found = list(
        extract_features(
            words_bert, TEXTS, layers=[0, -1, 1], tokenizer=words_tokenizer, batch_size=2
        )
    )
    assert [one.text for one in found] == TEXTS
    for text, one in zip(TEXTS, found, strict=True):
        expected = states_of(words_bert, words_tokenizer, text)
        np.testing.assert_allclose(one.vectors, expected[[0, 2, 1]], rtol=0, atol=1e-5)
    assert found[2].tokens == ("[CLS]", "good", "dog", "##s", "sat", "[SEP]")


@pytest.mark.long
def test_pooling_gives_one_vector_for_each_layer(words_bert, words_tokenizer):
    states = [states_of(words_bert, words_tokenizer, text)[1:] for text in TEXTS[:4]]
    for pooling, pool in (("cls", lambda X: X[:, 0]), ("mean", np.mean), ("max", np.max)):
        options = {"layers": [1, 2], "pooling": pooling, "tokenizer": words_tokenizer}
        found = extract_features(words_bert, TEXTS[:4], **options)
        for of_text, one in zip(states, found, strict=True):
            expected = pool(of_text) if pooling == "cls" else pool(of_text, axis=1)
            np.testing.assert_allclose(one.vectors, expected, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_the_last_layer_is_behind_the_final_normalization(words_tokenizer):
    bert = BERTModel(
        len(words_tokenizer.vocab), 8, 16, 2, 1, 0.0, 16, norm_first=True, final_norm=True
    )
    [one] = extract_features(bert, ["the cat"], tokenizer=words_tokenizer)
    encoded = bert.encoder(**words_tokenizer(["the cat"]))
    np.testing.assert_allclose(one.vectors[0], encoded[0], rtol=0, atol=1e-6)


def test_texts_are_read_a_few_batches_ahead(words_bert, words_tokenizer):
    taken = itertools.count()
    endless = (f"the cat {next(taken) % 7}" for _ in itertools.count())
    found = extract_features(words_bert, endless, tokenizer=words_tokenizer, batch_size=4)
    for _ in range(40):
        next(found)
    assert next(taken) <= 64


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": [3]}, r"numbers from -3 to 2.* Received: \[3\]"),
        ({"layers": []}, "`layers` must be a list"),
        ({"layers": "-1"}, "`layers` must be a list"),
        ({"pooling": "sum"}, "`pooling` must be one of"),
        ({"batch_size": 0}, "`batch_size`"),
        ({"texts": "the cat"}, "`texts` must be an iterable of texts"),
        ({"texts": {"text": ["the cat"]}}, "`texts` must be a text or a list of texts"),
        ({"texts": ["the cat sat " * 9], "truncate": False}, "at most 16 tokens"),
    ],
)
def test_wrong_arguments_are_refused(options, message, words_bert, words_tokenizer):
    arguments = {"texts": ["the cat"], "tokenizer": words_tokenizer, **options}
    with pytest.raises(ValueError, match=message):
        list(extract_features(words_bert, **arguments))


def test_long_texts_can_be_truncated(words_bert, words_tokenizer):
    with pytest.warns(TruncationWarning, match="Truncated to 16 tokens.*: 1 text. Where"):
        [one] = extract_features(words_bert, ["the cat sat " * 9], tokenizer=words_tokenizer)
    assert one.vectors.shape == (1, 16, 8)
    assert one.tokens[-1] == "[SEP]"
