"""The cache of words: the ids of a tokenizer, for every text and however much it remembers."""

import concurrent.futures
import random

import numpy as np
import pytest

from keras_bert_d2l.text.tokenizer import word_cache
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.tokenizer.word_cache import WordCache
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab

PIECES = [*"abcdeé.,!?-東σς[]#1", *(f"##{c}" for c in "abcdeé東σς1"), "ab", "##cd", "mask", "[X]"]
VOCAB = Vocab([*GOOGLE_SPECIALS, *PIECES])
PARTS = [*"aBcdÉé.,!?-東ΣσςI1#", "[MASK]", "[UNK]", "[X]", "[", "]", "e\u0301", "\u200b", "\x01"]
PARTS += ["abcd", "ab" * 70, "\U0001d49c", "İ", "\u3000", "\u00a0", "\t", "\n", "\x1c", *"    "]


def random_texts(draw, count):
    words = ["".join(draw.choices(PARTS, k=draw.randint(0, 6))) for _ in range(count)]
    return [" ".join(draw.choices(words, k=draw.randint(0, 12))) for _ in range(count)]


def check(cache, tokenizer, texts):
    ids, counts = cache.tokenize(texts)
    expected = tokenizer.tokenize(texts)
    assert ids.dtype == np.int32
    np.testing.assert_array_equal(counts, expected.row_lengths())
    np.testing.assert_array_equal(ids, expected.values)


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 4, 19])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lowercase": False},
        {"split_special_tokens": True},
        {"special_tokens": ["[X]"]},
        {"compat": "huggingface", "tokenize_chinese_chars": False, "strip_accents": False},
    ],
)
def test_the_ids_are_those_of_the_tokenizer_whatever_is_remembered(options, slots, monkeypatch):
    monkeypatch.setattr(word_cache, "_SLOT_BITS", slots)
    monkeypatch.setattr(word_cache, "_MOST_IDS", 20 * slots**2)
    tokenizer = Tokenizer(VOCAB, **options)
    cache = WordCache(tokenizer)
    draw = random.Random(0)
    for _ in range(4):
        check(cache, tokenizer, random_texts(draw, 100))


def test_texts_without_words_have_no_ids():
    tokenizer = Tokenizer(VOCAB)
    for texts in ([], [""], ["", "  ", ""], ["a", ""], [" a  b "]):
        check(WordCache(tokenizer), tokenizer, texts)


def test_known_words_are_not_tokenized_again():
    class Counting(Tokenizer):
        def tokenize(self, texts):
            received.append(texts)
            return super().tokenize(texts)

    received = []
    cache = WordCache(Counting(VOCAB))
    for texts in (["ab cd", "cd e"], ["e ab cd"], ["cd " + "a" * 100, "a" * 100]):
        cache.tokenize(texts)
    assert [set(texts) for texts in received] == [{b"ab", b"cd", b"e"}, {b"a" * 100}]
    cache.tokenize(["a" * 100])  # too long to be remembered
    assert len(received) == 3


def test_special_tokens_with_spaces_stay_whole():
    vocab = Vocab([*GOOGLE_SPECIALS, "a", "b", "a b"])
    tokenizer = Tokenizer(vocab, special_tokens=["a b"])
    check(WordCache(tokenizer), tokenizer, ["a b", "b a b"])


def test_a_very_long_text_is_tokenized_without_the_cache():
    tokenizer = Tokenizer(VOCAB)
    check(WordCache(tokenizer), tokenizer, ["ab cd e " * (word_cache._MOST_BYTES // 8)])


def test_several_threads_may_use_the_cache():
    tokenizer = Tokenizer(VOCAB)
    cache = WordCache(tokenizer)
    texts = [random_texts(random.Random(n), 40) for n in range(8)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(cache.tokenize, texts))
    for some, (ids, counts) in zip(texts, found, strict=True):
        expected = tokenizer.tokenize(some)
        np.testing.assert_array_equal(counts, expected.row_lengths())
        np.testing.assert_array_equal(ids, expected.values)
