"""Normalisation: google's rules as TensorFlow ops against the same rules in plain Python."""

import unicodedata

import pytest
import tensorflow as tf

from keras_bert_d2l.text.normalization import normalize, split_words
from keras_bert_d2l.text.vocab import BOOK_SPECIALS, GOOGLE_SPECIALS

CHINESE = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)


def python_words(text: str, lowercase: bool) -> list[str]:
    """The rules, character by character (`BasicTokenizer` of google-research/bert)."""
    characters = []
    for character in text:
        category = unicodedata.category(character)
        if category == "Zs" or character in "\t\n\r":
            characters.append(" ")
        elif any(low <= ord(character) <= high for low, high in CHINESE):
            characters += [" ", character, " "]
        elif category not in ("Cc", "Cf") and character != "\ufffd":
            characters.append(character)
    words = []
    for word in "".join(characters).split():
        if lowercase:
            word = unicodedata.normalize("NFD", word.lower())
            word = "".join(c for c in word if unicodedata.category(c) != "Mn")
        words += "".join(f" {c} " if is_punctuation(c) else c for c in word).split()
    return words


def is_punctuation(character: str) -> bool:
    is_ascii_symbol = character.isascii() and character.isprintable() and not character.isalnum()
    is_punctuation = unicodedata.category(character).startswith("P")
    return (is_ascii_symbol and character != " ") or is_punctuation


def tensor_words(texts: list[str], lowercase: bool) -> list[list[str]]:
    words = split_words(normalize(tf.constant(texts), GOOGLE_SPECIALS, lowercase))
    return [[word.decode() for word in row] for row in words.to_list()]


def stable_characters() -> list[str]:
    """Characters that mean the same to every Unicode version since 3.2, thinned out above 3400."""
    old = unicodedata.ucd_3_2_0
    codes = [*range(1, 0x3400), *range(0x3400, 0x110000, 61), *range(0xF900, 0x10000)]
    characters = [chr(code) for code in codes if not 0xD800 <= code <= 0xDFFF]
    return [c for c in characters if old.category(c) == unicodedata.category(c) != "Cn"]


@pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])
def test_every_character_is_treated_as_google_does(lowercase):
    texts = [f"a{c}b I{c}\u0307 {c}.{c}" for c in stable_characters()]
    expected = [python_words(text, lowercase) for text in texts]
    actual = tensor_words(texts, lowercase)
    different = [(t, e, a) for t, e, a in zip(texts, expected, actual, strict=True) if e != a]
    assert different == []


def test_text_is_cleaned_lowered_stripped_and_split():
    text = " \tHeLLo!how  \n Are yoU? ÄÖ\u00ad\u200bÜ 東京x"
    assert tensor_words([text], True) == [
        ["hello", "!", "how", "are", "you", "?", "aou", "東", "京", "x"]
    ]
    assert tensor_words([text], False) == [
        ["HeLLo", "!", "how", "Are", "yoU", "?", "ÄÖÜ", "東", "京", "x"]
    ]


def test_a_final_sigma_is_lowered_as_python_does():
    assert tensor_words(["ΟΔΥΣΣΕΥΣ. ΑΣ Σ"], True) == [python_words("ΟΔΥΣΣΕΥΣ. ΑΣ Σ", True)]


@pytest.mark.parametrize("specials", [GOOGLE_SPECIALS, BOOK_SPECIALS], ids=["google", "book"])
@pytest.mark.parametrize("lowercase", [True, False])
def test_special_tokens_become_words_of_their_own(specials, lowercase):
    text = tf.constant([f"A{specials[4]}b{specials[0]}{specials[1]} {specials[4].swapcase()}"])
    words = split_words(normalize(text, specials, lowercase))[0].numpy().tolist()
    marked = [word for word in words if b"\x01" in word]
    assert len(marked) == 3
    assert words[0].lower() == b"a"
    assert words[2] == b"b"


@pytest.mark.parametrize("letter", ["a", "é", "𝒜"])
def test_a_word_is_unknown_from_201_characters_on(letter):
    text = tf.constant([f"x {letter * 200}-{letter * 201}. y"])
    words = split_words(normalize(text, GOOGLE_SPECIALS, False))[0].numpy().tolist()
    assert words[1] == (letter * 200).encode()
    assert words[3] == b"\x01UNK\x01"
    assert [words[0], words[2], *words[4:]] == [b"x", b"-", b".", b"y"]


@pytest.mark.slow
def test_the_locale_of_the_process_changes_nothing(fresh_process):
    texts = ["TITLE Iİıi I\u0307 Ì", "[MASK] İSTANBUL"]
    code = """
        import sys
        import tensorflow as tf
        from keras_bert_d2l.text.normalization import normalize
        from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS
        print(normalize(tf.constant(sys.argv[1:]), GOOGLE_SPECIALS, True).numpy().tolist())
    """
    expected = normalize(tf.constant(texts), GOOGLE_SPECIALS, True).numpy().tolist()
    assert expected[0].decode() == "title iiıi i i"
    for name in ("tr_TR.UTF-8", "lt_LT.UTF-8"):
        assert fresh_process(code, *texts, LC_ALL=name, LANG=name).strip() == str(expected)
