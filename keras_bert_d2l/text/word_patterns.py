r"""How byte-level BPE splits texts into words: the steps of `pre_tokenizer` as patterns.

The regular expressions of TensorFlow have no look-ahead. The patterns of GPT-2 and its successors
end with `|\s+(?!\S)|\s+`, which keeps the last of several spaces for the word that follows them.
This is replaced by a first pass, which ends a word before that space.

Source: github.com/huggingface/tokenizers, `pre_tokenizers`; github.com/openai/gpt-2,
`src/encoder.py`.
"""

import functools
import re
from typing import NamedTuple

from keras_bert_d2l.checks import shown
from keras_bert_d2l.text.unicode_gaps import (
    character_class,
    letters_and_numbers,
    white_space,
    word_classes,
)
from keras_bert_d2l.types import ConfigDict

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
PUNCTUATION = {"type": "Punctuation", "behavior": "Isolated"}  # the only step after the bytes
_LOOK_AHEAD = r"|\s+(?!\S)|\s+"
# What may stand before it: patterns that the first pass cannot interrupt.
_BEFORE = (
    r"'\w+|\(\?i:[\w'|]+\)|(?: \?|\[\^\\r\\n\\p\{L}\\p\{N}]\?)?\\p\{[LN]}(?:\+|\{\d,\d})?"
    r"| \?\[\^\\s\\p\{L}\\p\{N}]\+(?:\[\\r\\n][*+])?|\\s\*\[\\r\\n]\+?"
)
_BEFORE_LOOK_AHEAD = re.compile(rf"(?:{_BEFORE})(?:\|(?:{_BEFORE}))*")
# The parts of other patterns that mean the same everywhere.
_PART = re.compile(
    r"\((?:\?:|\?i:|(?!\?))|\)|\[\^?|]|\\(?:[srnt/.\-'\"\\]|p\{[LN]})|\{\d+(?:,\d*)?}|[^\\(\[.^${}]"
)
_DIFFERENT = re.compile(r"[?*+]\+|\d}\+|&&|\[\^?[^]]*\[|\[\^?]")  # what programs read differently
_BEHAVIORS = {  # whether matches are words, and the text between them
    ("Isolated", False): (True, True),
    ("Isolated", True): (True, True),
    ("Contiguous", False): (True, True),
    ("Removed", False): (False, True),
    ("Removed", True): (True, False),
}


class Split(NamedTuple):
    """Splits texts before and after each match of a pattern.

    Attributes:
        pattern: A regular expression of TensorFlow.
        last_space: One with two groups, for the first pass: a word ends between them. Or "".
        keeps_matches: Whether the matches are words. Otherwise, they are removed.
        keeps_others: Whether the text between the matches is words.
    """

    pattern: str
    last_space: str = ""
    keeps_matches: bool = True
    keeps_others: bool = True


@functools.cache
def pattern_of(pattern: str) -> Split:
    """Return a `Split` at the matches of a pattern of `tokenizer.json`.

    Raises:
        ValueError: The pattern is not supported.
    """
    letters, numbers, spaces = map(character_class, (*letters_and_numbers(), white_space()))
    classes, last_space = {r"\p{L}": letters, r"\p{N}": numbers, r"\s": spaces}, ""
    if pattern.endswith(_LOOK_AHEAD):
        pattern = pattern.removesuffix(_LOOK_AHEAD)
        if not _BEFORE_LOOK_AHEAD.fullmatch(pattern):
            raise ValueError(f"the pattern {shown(pattern)} before a look-ahead")
        ends = "\r\n" if r"\s*[\r\n]" in pattern else ""
        last = character_class(white_space().difference(map(ord, ends)))
        last_space = f"([{spaces}])([{last}][^{spaces}])"
        pattern += r"|\s+"
    parts, found, in_class = _PART.findall(pattern), [], False
    for part in parts:
        in_class = part[0] == "[" or (in_class and part != "]")
        text = classes.get(part, part)
        found.append(text if in_class or text == part else f"[{text}]")
    try:
        may_be_empty = bool(re.match(re.sub(r"\\p\{[LN]}", "x", pattern), ""))
    except re.error:
        may_be_empty = True
    if "".join(parts) != pattern or _DIFFERENT.search(pattern) or may_be_empty:
        raise ValueError(f"the pattern {shown(pattern)}")
    return Split("".join(found), last_space)


def splits(step: ConfigDict) -> list[Split]:
    """Return how a step other than `ByteLevel` splits texts.

    Raises:
        ValueError: The step is not supported.
    """
    kind, behavior = step["type"], (step.get("behavior", "Isolated"), bool(step.get("invert")))
    words, numbers, marks = map(character_class, word_classes())
    spaces = Split(f"[{character_class(white_space())}]+", keeps_matches=False)
    if kind == "WhitespaceSplit":
        return [spaces]
    if kind == "Whitespace":
        return [spaces, Split(f"[{words}]+")]
    if kind == "Digits":
        return [Split(f"[{numbers}]" + ("" if step["individual_digits"] else "+"))]
    if kind == "Punctuation":
        found = Split(f"[{marks}]")
    elif kind == "Split" and "String" in step["pattern"]:
        found = Split("".join(rf"\x{{{ord(c):x}}}" for c in step["pattern"]["String"]))
    elif kind == "Split":
        found = pattern_of(step["pattern"]["Regex"])
    else:
        raise ValueError(f"the step {shown(kind)}")
    if behavior not in _BEHAVIORS or (found.last_space and behavior[0] != "Isolated"):
        raise ValueError(f"the behavior {shown(behavior[0])}")
    if behavior[0] == "Contiguous":
        found = Split(f"(?:{found.pattern})+")
    keeps_matches, keeps_others = _BEHAVIORS[behavior]
    return [found._replace(keeps_matches=keeps_matches, keeps_others=keeps_others)]
