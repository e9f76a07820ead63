"""WordPieces: all characters of Unicode 14, and tokens that are hard to reach."""

import unicodedata

import pytest
import tensorflow as tf

from keras_bert_d2l.text.normalization import Normalization
from keras_bert_d2l.text.tokenizer.wordpiece import WordPieces
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab

UNK = 1


def cut(texts, tokens=(), **options):
    normalized = Normalization(GOOGLE_SPECIALS, **options)(tf.constant(texts))
    word_pieces = WordPieces(
        Vocab([*GOOGLE_SPECIALS, *tokens]), Normalization(GOOGLE_SPECIALS, **options)
    )
    return normalized, *word_pieces(normalized)


def words_of(texts, **options):
    """Split into words: without pieces in the vocabulary, each unknown token is a word."""
    normalized, _, starts, ends = cut(texts, **options)
    rows = zip(normalized.numpy(), starts.to_list(), ends.to_list(), strict=True)
    return [[text[s:e].decode() for s, e in zip(a, b, strict=True)] for text, a, b in rows]


@pytest.mark.parametrize(
    "step", [37, pytest.param(1, marks=pytest.mark.slow)], ids=["sample", "all"]
)
@pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])
def test_characters_of_unicode_14_are_split_as_in_googles_code(google, lowercase, step):
    if unicodedata.unidata_version != "14.0.0":
        pytest.skip(f"Unicode 14 is that of Python 3.11; here is {unicodedata.unidata_version}")
    codes = [c for c in range(1, 0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    assert len(codes) == 282_229  # including 137,468 private-use characters
    texts = [f"a{chr(code)}b" for code in codes[::step]]
    different = []
    for i in range(0, len(texts), 40_000):
        part = texts[i : i + 40_000]
        for text, actual in zip(part, words_of(part, lowercase=lowercase), strict=True):
            if actual != google.words(text, lowercase):
                different.append(text)
    assert different == []


def test_each_piece_has_its_byte_offsets():
    _, ids, starts, ends = cut(["un\u00e9s [MASK]x"], ["un", "##e", "##s"])
    assert ids.to_list() == [[5, 6, 7, 4, UNK]]
    assert starts.to_list() == [[0, 2, 3, 6, 13]]
    assert ends.to_list() == [[2, 3, 4, 12, 14]]


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("character", ["\u2e43", "\u061d", "\U0002b820", "\U0001e944"])
def test_hugging_face_treats_characters_newer_than_unicode_8_as_letters(character, lowercase):
    text = f"a{character}b"
    tokens = ["a", f"##{character}", "##b", character]
    _, ids, _, _ = cut([text], tokens, lowercase=lowercase, compat="huggingface")
    assert ids.to_list() == [[5, 6, 7]]


def test_hugging_face_treats_punctuation_of_unicode_8_as_separate_words():
    text = "a\u166db\U000111c9"
    tokens = ["a", "\u166d", "b", "\U000111c9"]
    assert cut([text], tokens, compat="huggingface")[1].to_list() == [[5, 6, 7, 8]]
    assert cut([text], tokens)[1].to_list() == [[UNK]]


def test_private_use_tokens_are_unreachable_with_hugging_face():
    tokens = ["\ue000", "a\ue001", "##\ue002", "a"]
    assert cut(["\ue000 a\ue001 a\ue002 \u061d"], tokens, compat="huggingface")[1].to_list() == [
        [8, 8, UNK]
    ]
    assert cut(["\ue000 a\ue001 a\ue002"], tokens)[1].to_list() == [[5, 6, 8, 7]]
