"""The rules of Gopher (Rae et al. 2021, appendix A.1.1) for the quality of web pages.

They are applied to sentences in place of lines. Words are separated by white space. The rules for
duplicate paragraphs are not applied, because documents consist of sentences.
"""

import collections
import itertools
from collections.abc import Sequence

import numpy as np

from keras_bert_d2l.text.selection.repetition import WordArrays, are_repetitive
from keras_bert_d2l.text.words import single_spaced

_BULLETS = ("•", "‣", "▪", "●", "◦", "*", "-", "–")
_ELLIPSES = ("...", "…")
_STOP_WORDS = tuple(f" {word} " for word in "the be to of and that have with".split())

# The rules in the order in which they are reported. The first broken rule counts.
_WORDS, _WORD_LENGTH = (50, 100_000), (3, 10)
_SYMBOLS, _BULLET_SHARE, _ELLIPSIS_SHARE, _ALPHABETIC, _NUM_STOP_WORDS = 0.1, 0.9, 0.3, 0.8, 2
_COPIES, _COPIED_CHARACTERS = 0.3, 0.2  # shares of copied sentences and of their characters


def broken_rules(documents: Sequence[Sequence[str]]) -> list[str | None]:
    """Return the first rule of Gopher that each document breaks, or None."""
    texts = [single_spaced(" ".join(document)) for document in documents]
    counts = [text.count(" ") + 1 if text else 0 for text in texts]
    reasons: list[str | None] = ["Gopher: number of words"] * len(documents)
    # Without the others, because `WordArrays` has a limit.
    rest = [number for number, count in enumerate(counts) if _WORDS[0] <= count <= _WORDS[1]]
    if not rest:
        return reasons
    words = _words(rest, texts, counts)
    for number, num_letters in zip(rest, words.beginning_with_letters().tolist(), strict=True):
        reasons[number] = _rule_of(documents[number], texts[number], counts[number], num_letters)
    unclear = np.array(rest)[words.may_be_repetitive()].tolist()
    unclear = [number for number in unclear if reasons[number] is None]
    if unclear:
        repetitive = are_repetitive(_words(unclear, texts, counts))
        for number in np.array(unclear)[repetitive].tolist():
            reasons[number] = "Gopher: repeated phrases"
    return reasons


def _words(numbers: Sequence[int], texts: Sequence[str], counts: Sequence[int]) -> WordArrays:
    return WordArrays([texts[number] for number in numbers], [counts[number] for number in numbers])


def _rule_of(document: Sequence[str], text: str, count: int, num_letters: int) -> str | None:
    """Return the first broken rule of those that look at words and sentences.

    Each rule first tries a cheap test that most documents pass.

    Args:
        document: The sentences.
        text: Their words, with one space between them.
        count: Number of words.
        num_letters: Number of words that begin with an ASCII letter.
    """
    if not _WORD_LENGTH[0] <= (len(text) + 1) / count - 1 <= _WORD_LENGTH[1]:  # without spaces
        return "Gopher: length of words"
    num_ellipses = sum(map(text.count, _ELLIPSES))
    if max(text.count("#"), num_ellipses) > _SYMBOLS * count:
        return "Gopher: symbols"
    # If over nine tenths of the sentences are bullet points, so is one of the first tenth.
    if any(line.startswith(_BULLETS) for line in document[: len(document) // 10 + 1]) and (
        sum(line.startswith(_BULLETS) for line in document) > _BULLET_SHARE * len(document)
    ):
        return "Gopher: bullet points"
    most = _ELLIPSIS_SHARE * len(document)
    if num_ellipses > most and sum(line.endswith(_ELLIPSES) for line in document) > most:
        return "Gopher: ellipses"
    if num_letters < _ALPHABETIC * count and _has_few_letters(text, count):
        return "Gopher: words without letters"
    if not _has_stop_words(text) and not _has_stop_words(text.lower()):
        return "Gopher: stop words"
    if len(set(document)) < len(document) and _has_copies(document, text):
        return "Gopher: repeated sentences"
    return None


def _has_few_letters(text: str, count: int) -> bool:
    words, least = text.split(), _ALPHABETIC * count
    # Look for letters within words only if too few words consist of letters alone.
    return sum(map(str.isalpha, words)) < least and (
        sum(any(map(str.isalpha, word)) for word in words) < least
    )


def _has_stop_words(text: str) -> bool:
    padded = f" {text} "
    found = (word for word in _STOP_WORDS if word in padded)
    return len(list(itertools.islice(found, _NUM_STOP_WORDS))) == _NUM_STOP_WORDS


def _has_copies(document: Sequence[str], text: str) -> bool:
    copies = collections.Counter(document)
    num_copies = len(document) - len(copies)
    num_copied = sum(len(line) * (times - 1) for line, times in copies.items())
    return num_copies > _COPIES * len(document) or num_copied > _COPIED_CHARACTERS * len(text)
