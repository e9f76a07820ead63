import numpy as np
import pytest

from keras_bert_d2l.book.vocabulary import Vocab, tokenize

SENTENCES = [["b", "a", "c"], ["a", "c", "a"]]  # a three times, c twice, b once


def test_unk_comes_first_then_the_reserved_tokens_then_words_by_frequency():
    vocab = Vocab(SENTENCES, reserved_tokens=["<pad>", "<mask>"])
    assert vocab.idx_to_token == ["<unk>", "<pad>", "<mask>", "a", "c", "b"]
    assert vocab.token_to_idx["c"] == 4
    assert vocab.token_freqs == [("a", 3), ("c", 2), ("b", 1)]
    assert (vocab.unk, len(vocab)) == (0, 6)
    assert Vocab(["b", "c", "a"]).idx_to_token == ["<unk>", "a", "b", "c"]  # equally frequent
    assert Vocab([[], ["a"]]).idx_to_token == ["<unk>", "a"]


def test_words_below_min_freq_are_unknown():
    vocab = Vocab(SENTENCES, min_freq=2)
    assert vocab.idx_to_token == ["<unk>", "a", "c"]
    assert vocab["b"] == vocab.unk == 0


def test_a_reserved_token_that_occurs_in_the_text_has_one_id():
    vocab = Vocab(["<pad>", "<unk>", "x"], reserved_tokens=["<pad>"])
    assert vocab.idx_to_token == ["<unk>", "<pad>", "x"]


def test_tokens_to_ids_and_ids_to_tokens_are_inverse():
    vocab = Vocab(SENTENCES)
    assert vocab[["a", "nowhere", "b"]] == [1, 0, 3]
    assert vocab.to_tokens([1, 0, 3]) == ["a", "<unk>", "b"]
    assert vocab.to_tokens(np.array([2, 1])) == ["c", "a"]
    assert vocab.to_tokens(2) == vocab.to_tokens(np.int64(2)) == "c"
    assert vocab[[]] == []


def test_a_stored_vocabulary_can_be_assigned_as_in_16_7_1():
    vocab = Vocab()
    vocab.idx_to_token = ["<pad>", "<unk>", "word"]
    vocab.token_to_idx = {token: idx for idx, token in enumerate(vocab.idx_to_token)}
    assert (len(vocab), vocab["word"], vocab["other"], vocab.unk) == (3, 2, 1, 1)


def test_tokenize_splits_into_words_or_characters():
    assert tokenize(["a crane  flies .\n", ""]) == [["a", "crane", "flies", "."], []]
    assert tokenize(["ab", "c"], token="char") == [["a", "b"], ["c"]]
    with pytest.raises(ValueError, match="'sentence'"):
        tokenize(["a"], "sentence")
