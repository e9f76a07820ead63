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
from keras_bert_d2l.text import unicode_gaps as gaps
from keras_bert_d2l.text.definition import steps
from keras_bert_d2l.text.unicode_gaps import character_class
from keras_bert_d2l.types import ConfigDict

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_PUNCTUATION = {"type": "Punctuation", "behavior": "Isolated"}  # the only step after the bytes
_MERGED = ("MergedWithPrevious", "MergedWithNext")
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


class Split(NamedTuple):
    """Splits texts before and after each match of a pattern.

    Attributes:
        pattern: A regular expression of TensorFlow.
        last_space: One with two groups, for the first pass: a word ends between them. Or "".
        keeps_matches: Whether the matches are words. Otherwise, they are removed.
        keeps_others: Whether the text between the matches is words.
        sides: Where a match is split from the text, as for `split_at`.
    """

    pattern: str
    last_space: str = ""
    keeps_matches: bool = True
    keeps_others: bool = True
    sides: str = "both"


@functools.cache
def pattern_of(pattern: str) -> Split:
    """Return a `Split` at the matches of a pattern of `tokenizer.json`.

    Raises:
        ValueError: The pattern is not supported.
        re.error: The pattern is damaged.
    """
    sets = (gaps.white_space(), *gaps.letters_and_numbers())
    classes = dict(zip((r"\s", r"\p{L}", r"\p{N}"), map(character_class, sets), strict=True))
    spaces, last_space = classes[r"\s"], ""
    if pattern.endswith(_LOOK_AHEAD):
        pattern = pattern.removesuffix(_LOOK_AHEAD)
        if not _BEFORE_LOOK_AHEAD.fullmatch(pattern):
            raise ValueError(f"the pattern {shown(pattern)} before a look-ahead")
        ends = "\r\n" if r"\s*[\r\n]" in pattern else ""
        last = character_class(gaps.white_space().difference(map(ord, ends)))
        last_space = f"([{spaces}])([{last}][^{spaces}])"
        pattern += r"|\s+"
    parts, found, in_class = _PART.findall(pattern), [], False
    for part in parts:
        in_class = part[0] == "[" or (in_class and part != "]")
        text = classes.get(part, part)
        found.append(text if in_class or text == part else f"[{text}]")
    is_supported = "".join(parts) == pattern and not _DIFFERENT.search(pattern)
    if not is_supported or re.match(re.sub(r"\\p\{[LN]}", "x", pattern), ""):  # may be empty
        raise ValueError(f"the pattern {shown(pattern)}")
    return Split("".join(found), last_space)


def splits_of(step: ConfigDict) -> list[Split]:
    """Return how a step other than `ByteLevel` and `Metaspace` splits texts.

    Raises:
        ValueError: The step is not supported.
    """
    kind, behavior, invert = step["type"], step.get("behavior", "Isolated"), step.get("invert")
    words, numbers, marks = map(character_class, gaps.word_classes())
    spaces = Split(f"[{character_class(gaps.white_space())}]+", keeps_matches=False)
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
    if (
        behavior
        not in ("Isolated", "Contiguous", "Removed", *_MERGED)[: 1 if found.last_space else 5]
    ):
        raise ValueError(f"the behavior {shown(behavior)}")
    if behavior == "Contiguous":
        found = Split(f"(?:{found.pattern})+")
    if behavior == "Removed":
        found = Split(found.pattern, "", bool(invert), not invert)
    if behavior in _MERGED:
        merges_next = (behavior == "MergedWithNext") != bool(invert)
        found = found._replace(sides="before" if merges_next else "after")
    return [found]


def word_steps(pre_tokenizer: ConfigDict | None) -> tuple[list[Split], ConfigDict, bool]:
    """Return the steps before `ByteLevel`, its fields, and whether bytes are split at punctuation.

    Raises:
        ValueError: A step is not supported.
        re.error: A pattern is damaged.
    """
    found = steps(pre_tokenizer, "pretokenizers")
    place = [step["type"] for step in found].index("ByteLevel")
    after = found[place + 1 :]
    if any(step != {**step, **_PUNCTUATION} for step in after):
        raise ValueError(f"after the bytes, only {_PUNCTUATION}")
    return [split for step in found[:place] for split in splits_of(step)], found[place], bool(after)
