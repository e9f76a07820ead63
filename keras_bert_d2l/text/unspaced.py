"""Scripts that are written without spaces, in which taggers take each character as a word.

These are the ideographs of Chinese and Japanese, kana, and the letters of Thai, Lao, Khmer and
Burmese. Combining marks belong to the character before.
"""

import functools
import itertools
import re
import unicodedata

from keras_bert_d2l.text.unicode_gaps import CHINESE, code_points, white_space, word_classes

_LETTERS = """
3005-3007 3031-3035 3041-3096 3099-309A 309D-309F 30A1-30FA 30FC-30FF 31F0-31FF FF66-FF9F E01-E3A
E40-E4E E81-ECE EDC-EDF 1000-103F 1050-108F 109A-109D 1780-17D3 17D7 17DC-17DD 2CEB0-2EBEF
30000-323AF
"""
UNSPACED = frozenset(code_points(f"{CHINESE} {_LETTERS}"))
_SPACES = white_space()


def spaced(text: str) -> tuple[str, list[int]]:
    """Return a text with a space between the characters of scripts without spaces.

    Returns: also the index in `text` of each character, and the length of `text`. The index of a
        new space is that of the character after it.
    """
    codes = [*map(ord, text)]
    if UNSPACED.isdisjoint(codes):
        return text, [*range(len(text) + 1)]
    places: list[int] = []
    for place, code in enumerate(codes):
        near, is_mark = (
            {code, *codes[place - 1 : place]},
            unicodedata.category(text[place])[0] == "M",
        )
        has_space = place and not is_mark and near & UNSPACED and not near & _SPACES
        places += [place] * (2 if has_space else 1)
    places.append(len(text))
    return "".join(" " if a == b else text[a] for a, b in itertools.pairwise(places)), places


def word_places(text: str) -> list[tuple[int, int]]:
    """Return where the words of a text start and end: at white space and around punctuation.

    A punctuation mark is a word, and so is a character of a script without spaces.
    """
    parts, places = spaced(text)
    words = (match.span() for match in _word().finditer(parts))
    return [(places[start], places[end - 1] + 1) for start, end in words]


@functools.cache
def _word() -> re.Pattern[str]:
    marks = "".join(re.escape(chr(code)) for code in word_classes()[2])
    return re.compile(rf"[{marks}]|[^\s{marks}]+")
