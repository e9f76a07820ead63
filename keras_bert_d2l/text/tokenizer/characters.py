"""Change the characters of texts as Hugging Face's normalizers do, and remember their places.

Each step takes `Characters` and returns them. N: characters of all texts together.

Source: github.com/huggingface/tokenizers, `tokenizer/normalizer.rs` and `normalizers`.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import tensorflow as tf

from keras_bert_d2l.text.definition import FORMS
from keras_bert_d2l.text.normalization import decode, rows_of_values
from keras_bert_d2l.text.unicode_forms import CodeTable, NormalForm, Replacements, previous
from keras_bert_d2l.text.unicode_gaps import inert_characters, white_space

SPACE = ord(" ")
# The characters up to these do not change, move or join with others of them.
LAST_STABLE = {form: 0x2FF if form == "NFC" else 0x7F for form in FORMS}


class Characters(NamedTuple):
    """The characters of texts.

    Attributes:
        codes: Code points, int32 `(N,)`.
        sources: The character of the original text that each comes from, int32 `(N,)`.
        rows: The text of each, in ascending order, int32 `(N,)`.
    """

    codes: tf.Tensor
    sources: tf.Tensor
    rows: tf.Tensor

    def keep(self, is_kept: tf.Tensor) -> "Characters":
        """Return the characters for which `is_kept`, bool `(N,)`, is true."""
        return self.take(places_of(is_kept))

    def take(self, places: tf.Tensor) -> "Characters":
        """Return the characters at some places."""
        return Characters(*(tf.gather(values, places) for values in self))

    def starts_row(self) -> tf.Tensor:
        """Return whether each character is the first of its text, bool `(N,)`."""
        return self.rows != previous(self.rows, -1)


def characters_of(parts: tf.RaggedTensor) -> Characters:
    """Return the characters of texts `(B, None)`; their rows are the parts of all texts."""
    codes = decode(parts.flat_values)
    rows = rows_of_values(codes)
    # The first character of the text of each part.
    first = tf.gather(parts.row_splits, rows_of_values(parts))
    first = tf.gather(codes.row_splits, first)
    sources = tf.range(tf.size(rows, tf.int64)) - tf.gather(first, rows)
    return Characters(codes.flat_values, tf.cast(sources, tf.int32), tf.cast(rows, tf.int32))


Step = Callable[[Characters], Characters]


def normalized_text(text: str, steps: Iterable[Step]) -> str:
    """Return a string after some steps, which run eagerly."""
    codes = tf.constant([*map(ord, text)], tf.int32)
    found = Characters(codes, tf.range(tf.size(codes)), tf.zeros_like(codes))
    for step in steps:
        found = step(found)
    return "".join(map(chr, found.codes.numpy()))


def following(values: tf.Tensor, last: object) -> tf.Tensor:
    """Return the value after each one."""
    return tf.concat([values, tf.fill([1], tf.cast(last, values.dtype))], 0)[1:]


def places_of(mask: tf.Tensor) -> tf.Tensor:
    """Return the places at which a mask `(N,)` is true, int64."""
    return tf.reshape(tf.where(mask), [-1])


def replaced(text: Characters, replacements: Replacements, numbers: tf.Tensor) -> Characters:
    """Replace characters. Each new character comes from the one that it replaces."""

    def changed() -> Characters:
        codes, owners, _ = replacements(text.codes, numbers)
        return text.take(owners)._replace(codes=codes)

    return tf.cond(tf.reduce_any(numbers > 0), changed, lambda: text)


def map_characters(new: Mapping[int, str]) -> Step:
    """Replace each character on its own."""
    numbers = CodeTable({code: number for number, code in enumerate(new, 1)})
    replacements = Replacements([*new.values()])
    return lambda text: replaced(text, replacements, numbers(text.codes))


@functools.cache
def normal_form(form: str) -> Step:
    """Bring texts into a Unicode normalization form, as Hugging Face's tokenizers do.

    Their tables are older than those of Python. Characters that they do not know are inert.
    """
    normalize = NormalForm(form, inert_characters())

    def changed(text: Characters) -> Characters:
        codes, rows, places = normalize(text.codes, text.rows)
        return Characters(codes, tf.gather(text.sources, places), rows)

    return lambda text: tf.cond(
        tf.reduce_any(text.codes > LAST_STABLE[form]), lambda: changed(text), lambda: text
    )


def replace_runs(codes: Iterable[int], singles: Iterable[int], content: str) -> Step:
    """Replace two or more of some characters, and one of `singles`, with `content`."""
    roles = CodeTable(dict.fromkeys(codes, 1) | dict.fromkeys(singles, 2))
    replacements = Replacements([content, ""])

    def step(text: Characters) -> Characters:
        role = roles(text.codes)
        follows = (role > 0) & ~text.starts_row() & (previous(role, 0) > 0)
        goes_on = following(follows, False)
        is_last = tf.cast(follows | (role == 2), tf.int32)
        return replaced(text, replacements, tf.where(goes_on, 2, is_last))

    return step


def replace_text(pattern: str, content: str) -> Step:
    """Replace a text, which may overlap itself only as a run of one character, with `content`."""
    length, is_run = len(pattern), len(set(pattern)) == 1
    replacements = Replacements([content, ""])

    def step(text: Characters) -> Characters:
        place = tf.range(tf.size(text.codes))
        is_it = text.codes == ord(pattern[0])
        starts = text.starts_row()
        if is_run:
            begins = is_it & (starts | ~previous(is_it, False))
            firsts = tf.concat([[0], tf.boolean_mask(place, begins)], 0)
            in_run = place - tf.gather(firsts, tf.cumsum(tf.cast(begins, tf.int32)))
            is_last = is_it & (in_run % length == length - 1)
        else:
            for character in pattern[1:]:
                is_it = previous(is_it, False) & ~starts & (text.codes == ord(character))
            is_last = is_it
        inside = is_last
        for _ in range(length - 1):
            inside |= following(inside, False)
        numbers = tf.where(is_last, 1, tf.where(inside, 2, tf.zeros_like(place)))
        return replaced(text, replacements, numbers)

    return step


def strip(left: bool, right: bool) -> Step:
    """Remove white space from the ends of each text."""
    is_space = CodeTable(dict.fromkeys(white_space(), 1))

    def step(text: Characters) -> Characters:
        places = tf.range(tf.size(text.codes))
        inner = tf.boolean_mask(places, is_space(text.codes) == 0)
        rows = tf.gather(text.rows, inner)
        number = tf.searchsorted(rows, text.rows), tf.searchsorted(rows, text.rows, side="right")
        inner = tf.concat([[-1], inner, [tf.size(places)]], 0)
        kept = number[1] > number[0]
        if left:
            kept &= places >= tf.gather(inner, number[0] + 1)
        if right:
            kept &= places <= tf.gather(inner, number[1])
        return text.keep(kept)

    return step
