"""The normalizers of `tokenizer.json` as steps on characters, for all kinds but WordPiece.

Precompiled is SentencePiece's table of normalizations. Its file holds a double array trie of byte
strings and the texts that replace them. A grapheme (a letter with its accents) of less than 6 bytes
is replaced as a whole, by the text for its shortest beginning in the table; other characters are
replaced one by one. Graphemes that this module does not find (sequences of jamo, of emoji, and of
Indic consonants) have 6 bytes or more.

Source: github.com/huggingface/tokenizers, `normalizers`; github.com/huggingface/spm_precompiled,
`src/lib.rs`; Unicode Standard Annex 29.
"""

import base64
import functools
import unicodedata

import numpy as np
import tensorflow as tf

from keras_bert_d2l.reading import DAMAGE, errors_naming
from keras_bert_d2l.text.definition import steps
from keras_bert_d2l.text.tokenizer import characters
from keras_bert_d2l.text.tokenizer.characters import Characters
from keras_bert_d2l.text.unicode_forms import CodeTable, Replacements, previous
from keras_bert_d2l.text.unicode_gaps import (
    NUM_CODES,
    accents,
    lowercase_of,
    used_codes,
    white_space,
)
from keras_bert_d2l.types import ConfigDict

_MOST_GRAPHEME_BYTES = 5
# Limits for files that are made to fill the memory. SentencePiece's own tables have 250,000 bytes,
# 4,281 beginnings of keys of the same length, and at most 33 bytes in a replacement.
_MOST_BYTES, _MOST_KEYS, _MOST_NEW_BYTES = 2**21, 2**14, 255
# What a character does at the boundaries of graphemes.
_EXTENDS, _PREPENDS, _CONTROL, _CR, _LF = 1, 2, 3, 4, 5
_NO_SPACING_MARKS = (
    "\u102b\u102c\u1038\u1062\u1063\u1064\u1067\u1068\u1069\u106a\u106b\u106c\u106d\u1083\u1087"
    "\u1088\u1089\u108a\u108b\u108c\u108f\u109a\u109b\u109c\u1a61\u1a63\u1a64\uaa7b\uaa7d"
    "\U00011720\U00011721"
)
_OTHER_EXTENDING = (
    "\u0e33\u0eb3\u200c\u200d\uff9e\uff9f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
)
_PREPENDED = (
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e\U000110bd\U000110cd"
    "\U000111c2\U000111c3\U0001193f\U00011941\U00011a3a\U00011a84\U00011a85\U00011a86\U00011a87"
    "\U00011a88\U00011a89\U00011d46\U00011f02"
)


def normalizers_of(definition: ConfigDict) -> list[characters.Step]:
    """Return the steps for the normalizers of a definition.

    Raises:
        ValueError: If a field is missing or damaged.
    """
    problem, remedy = " in the normalizer is not valid", "Copy the tokenizer's files again."
    found = []
    for fields in steps(definition["normalizer"], "normalizers"):
        with errors_naming(fields["type"], problem, remedy, (*DAMAGE, AttributeError, TypeError)):
            found.append(_step(fields))
    return found


def _step(fields: ConfigDict) -> characters.Step:
    kind = fields["type"]
    if kind == "Precompiled":
        return Charsmap(fields["precompiled_charsmap"])
    if kind == "Strip":
        return characters.strip(fields["strip_left"], fields["strip_right"])
    if kind == "Replace" and "String" in fields["pattern"]:
        return characters.replace_text(fields["pattern"]["String"], fields["content"])
    if kind == "Replace":
        pattern = fields["pattern"]["Regex"]
        codes = white_space() if pattern.startswith(r"\s") else {ord(" ")}
        singles = map(ord, "\n\r\t" if "|" in pattern else "")
        return characters.replace_runs(codes, singles, fields["content"])
    if kind == "Lowercase":
        return characters.map_characters(lowercase_of())
    if kind == "StripAccents":
        return characters.map_characters(dict.fromkeys(accents(), ""))
    return characters.normal_form(kind)


class Charsmap(tf.Module):
    """Replaces characters and graphemes; a `Step` of `characters`.

    Args:
        encoded: The table in base64, as in `tokenizer.json`.

    Raises:
        ValueError: If the table is damaged.
    """

    def __init__(self, encoded: str) -> None:
        super().__init__(name="charsmap")
        new = read_charsmap(base64.b64decode(encoded, validate=True))
        keys = sorted(new, key=len)
        # The shortest beginning of a grapheme wins, so longer ones have no effect.
        used = [key for key in keys if not any(key[:n] in new for n in range(1, len(key)))]
        numbers = {key: number for number, key in enumerate(used, 1)}
        self._replacements = Replacements([new[key] for key in used])
        self._numbers = CodeTable({ord(key): n for key, n in numbers.items() if len(key) == 1})
        longer = {key: n for key, n in numbers.items() if 1 < len(key) < 4} or {"\0\0": 0}
        self._longer = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                [_key(*map(ord, key)) for key in longer], [*longer.values()], tf.int64, tf.int32
            ),
            default_value=0,
        )
        self._roles = _roles()

    def __call__(self, text: Characters) -> Characters:
        numbers, roles = self._numbers(text.codes), self._roles(text.codes)
        sizes = tf.ones_like(numbers)
        joins = self._joins_previous(text, roles)
        numbers, sizes = tf.cond(
            tf.reduce_any(joins),
            lambda: self._with_graphemes(text.codes, numbers, joins),
            lambda: (numbers, sizes),
        )
        return tf.cond(
            tf.reduce_any(numbers > 0), lambda: self._replaced(text, numbers, sizes), lambda: text
        )

    def _joins_previous(self, text: Characters, roles: tf.Tensor) -> tf.Tensor:
        """Return whether each character belongs to the grapheme of the one before it."""
        last = previous(roles, _CONTROL)
        extends = (roles == _EXTENDS) | (last == _PREPENDS) & (roles < _CONTROL)
        joins = (last < _CONTROL) & extends | (last == _CR) & (roles == _LF)
        return joins & ~text.starts_row()

    def _with_graphemes(
        self, codes: tf.Tensor, numbers: tf.Tensor, joins: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the number of the replacement of each character, and how many it replaces."""
        grapheme = tf.cumsum(tf.cast(~joins, tf.int32)) - 1
        num_bytes = 1 + sum(tf.cast(codes >= least, tf.int32) for least in (0x80, 0x800, 0x10000))
        lengths = tf.math.segment_sum(tf.ones_like(codes), grapheme)
        is_short = tf.math.segment_sum(num_bytes, grapheme) <= _MOST_GRAPHEME_BYTES
        firsts = tf.boolean_mask(tf.range(tf.size(codes)), ~joins)
        some = tf.where(is_short & (lengths > 1))[:, 0]
        firsts, lengths = tf.gather(firsts, some), tf.gather(lengths, some)
        padded = tf.pad(tf.cast(codes, tf.int64), [[0, 2]])
        one, two, three = (tf.gather(padded, firsts + n) for n in range(3))
        found = tf.gather(numbers, firsts)
        for last, is_there in ((tf.zeros_like(three), True), (three, lengths > 2)):
            number = self._longer.lookup(_key(one, two, last))
            found = tf.where((found == 0) & is_there, number, found)
        is_whole = found > 0
        firsts, lengths = (tf.boolean_mask(values, is_whole) for values in (firsts, lengths))
        sizes = tf.tensor_scatter_nd_update(tf.ones_like(codes), firsts[:, tf.newaxis], lengths)
        inside = tf.ragged.range(firsts + 1, firsts + lengths).flat_values[:, tf.newaxis]
        sizes = tf.tensor_scatter_nd_update(sizes, inside, tf.zeros_like(inside[:, 0]))
        numbers = tf.tensor_scatter_nd_update(
            numbers, firsts[:, tf.newaxis], tf.boolean_mask(found, is_whole)
        )
        return numbers, sizes

    def _replaced(self, text: Characters, numbers: tf.Tensor, sizes: tf.Tensor) -> Characters:
        """Replace the characters, with the same changes of places as Hugging Face.

        A new character replaces the next one of the text, is inserted after it, or replaces it and
        removes those that follow. A removal at the start of a text is forgotten, which moves the
        places of the characters that follow.
        """
        units = tf.boolean_mask(tf.range(tf.size(sizes)), sizes > 0)
        rows, numbers, sizes = (tf.gather(values, units) for values in (text.rows, numbers, sizes))
        codes, owners, within = self._replacements(tf.gather(text.codes, units), numbers)
        lengths = tf.gather(self._replacements.lengths, numbers)
        more = lengths - sizes
        is_last = within == tf.gather(lengths, owners) - 1
        change = tf.where(
            within >= tf.gather(sizes, owners),
            1,
            tf.where(is_last, tf.gather(tf.minimum(more, 0), owners), 0),
        )
        ends = tf.cumsum(lengths)
        new_rows = tf.gather(rows, owners)
        # A removed unit counts as a change of the character before it in the same text.
        is_removed = (lengths == 0) & (ends > tf.searchsorted(new_rows, rows))
        before = tf.boolean_mask(ends, is_removed) - 1
        change = tf.tensor_scatter_nd_sub(
            change, before[:, tf.newaxis], tf.boolean_mask(sizes, is_removed)
        )
        used = tf.cumsum(tf.where(change > 0, 0, 1 - change), exclusive=True)
        first_of_row = tf.searchsorted(new_rows, new_rows)
        places = tf.searchsorted(text.rows, new_rows) + used - tf.gather(used, first_of_row)
        places = tf.where(change > 0, places - 1, places)
        return Characters(codes, tf.gather(text.sources, places), new_rows)


def read_charsmap(data: bytes) -> dict[str, str]:
    """Return the texts of a table of normalizations that replace at most 5 bytes."""
    size = int.from_bytes(data[:4], "little")
    if size % 4 or not 4 <= size <= len(data) - 4 <= _MOST_BYTES:
        raise ValueError("precompiled_charsmap does not have the size that it states")
    units = np.frombuffer(data, "<u4", size // 4, 4).astype(np.int64)
    texts = data[4 + size :]
    offsets = (units >> 10) << ((units & 0x200) >> 6)
    labels, is_end = units & 0x800000FF, (units >> 8) & 1
    places, keys = offsets[:1], np.zeros((1, 0), np.int64)
    found: dict[str, str] = {}
    for _ in range(_MOST_GRAPHEME_BYTES):
        children = places[:, np.newaxis] ^ np.arange(1, 256)
        inside = np.minimum(children, len(units) - 1)
        parent, byte = np.nonzero((children == inside) & (labels[inside] == np.arange(1, 256)))
        units_of = children[parent, byte]
        keys = np.concatenate([keys[parent], byte[:, np.newaxis] + 1], axis=1)
        places = units_of ^ offsets[units_of]
        if len(keys) > _MOST_KEYS or places.max(initial=0) >= len(units):
            raise ValueError("precompiled_charsmap is not a trie of normalizations")
        for end in np.nonzero(is_end[units_of])[0]:
            start = units[places[end]] & 0x7FFFFFFF
            key = bytes(keys[end].tolist()).decode()
            found[key] = texts[
                start : texts.index(b"\0", start, start + _MOST_NEW_BYTES + 1)
            ].decode()
    return found


def _key(one: tf.Tensor, two: tf.Tensor, three: tf.Tensor | int = 0) -> tf.Tensor:
    return (one * NUM_CODES + two) * NUM_CODES + three


@functools.cache
def _roles() -> CodeTable:
    roles = {}
    for code in used_codes():
        category = unicodedata.category(chr(code))
        if category in ("Mn", "Mc", "Me"):
            roles[code] = _EXTENDS
        elif category in ("Cc", "Cf", "Zl", "Zp"):
            roles[code] = _CONTROL
    roles |= dict.fromkeys(range(0xE0020, 0xE0080), _EXTENDS)
    roles |= dict.fromkeys(map(ord, _NO_SPACING_MARKS), 0)
    roles |= dict.fromkeys(map(ord, _OTHER_EXTENDING), _EXTENDS)
    roles |= dict.fromkeys(map(ord, _PREPENDED), _PREPENDS)
    return CodeTable(roles | {ord("\r"): _CR, ord("\n"): _LF})
