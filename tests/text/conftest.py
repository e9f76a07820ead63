"""Google's tokenization rules in plain Python, as a reference, and a fixture that writes files."""

import unicodedata
from types import SimpleNamespace

import pytest

CHINESE = (
    "3400-4DBF 4E00-9FFF F900-FAFF 20000-2A6DF 2A700-2B73F 2B740-2B81F 2B820-2CEAF 2F800-2FA1F"
)
CHINESE_RANGES = [[int(code, 16) for code in pair.split("-")] for pair in CHINESE.split()]
MAX_WORD_CHARACTERS = 200


def words(text: str, lowercase: bool) -> list[str]:
    """Split a text like `BasicTokenizer` of google-research/bert."""
    characters = []
    for character in text:
        category = unicodedata.category(character)
        if category == "Zs" or character in "\t\n\r":
            characters.append(" ")
        elif any(low <= ord(character) <= high for low, high in CHINESE_RANGES):
            characters += [" ", character, " "]
        elif category not in ("Cc", "Cf") and character != "\ufffd":
            characters.append(character)
    found = []
    for word in "".join(characters).split():
        if lowercase:
            word = unicodedata.normalize("NFD", word.lower())
            word = "".join(c for c in word if unicodedata.category(c) != "Mn")
        found += "".join(f" {c} " if is_punctuation(c) else c for c in word).split()
    return found


def is_punctuation(character: str) -> bool:
    is_ascii_symbol = character.isascii() and character.isprintable() and not character.isalnum()
    is_punctuation = unicodedata.category(character).startswith("P")
    return (is_ascii_symbol and character != " ") or is_punctuation


def ids(text: str, vocab, lowercase: bool) -> list[int]:
    """Split the words like `WordpieceTokenizer`: greedily, or not at all."""
    return [piece for word in words(text, lowercase) for piece in _pieces(word, vocab)]


def _pieces(word: str, vocab) -> list[int]:
    if len(word) > MAX_WORD_CHARACTERS:
        return [vocab.unk_id]
    found, start = [], 0
    while start < len(word):
        prefix = "##" if start else ""
        ends = range(len(word), start, -1)
        end = next((end for end in ends if prefix + word[start:end] in vocab), None)
        if end is None:
            return [vocab.unk_id]
        found.append(vocab[prefix + word[start:end]])
        start = end
    return found


@pytest.fixture(scope="session")
def google() -> SimpleNamespace:
    return SimpleNamespace(words=words, ids=ids)
