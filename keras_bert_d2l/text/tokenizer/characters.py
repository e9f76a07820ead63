"""Change the characters of texts as Hugging Face's normalizers do, and remember their places.

Each step takes `Characters` and returns them. N: characters of all texts together.

Source: github.com/huggingface/tokenizers, `tokenizer/normalizer.rs` and `normalizers`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert_d2l.text.normalization import decode, encode
from keras_bert_d2l.text.unicode_forms import normalize, sources
from keras_bert_d2l.text.unicode_gaps import NUM_CODES, white_space

SPACE = ord(" ")
_PAGE = 128


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


Step = Callable[[Characters], Characters]


def previous(values: tf.Tensor, first: object) -> tf.Tensor:
    """Return the value before each one."""
    return tf.concat([tf.fill([1], tf.cast(first, values.dtype)), values], 0)[:-1]


def following(values: tf.Tensor, last: object) -> tf.Tensor:
    """Return the value after each one."""
    return tf.concat([values, tf.fill([1], tf.cast(last, values.dtype))], 0)[1:]


def places_of(mask: tf.Tensor) -> tf.Tensor:
    """Return the places at which a mask `(N,)` is true, int64."""
    return tf.reshape(tf.where(mask), [-1])


class CodeTable:
    """A map from code points to integers; other code points have the value 0."""

    def __init__(self, values: Mapping[int, int]) -> None:
        whole = np.zeros(NUM_CODES, np.int32)
        whole[[*values]] = [*values.values()]
        pages: dict[bytes, int] = {}
        starts = [
            pages.setdefault(page.tobytes(), len(pages) * _PAGE)
            for page in whole.reshape(-1, _PAGE)
        ]
        self._values = np.frombuffer(b"".join(pages), np.int32)
        self._starts = np.array(starts, np.int32)

    def __call__(self, codes: tf.Tensor) -> tf.Tensor:
        starts = tf.gather(self._starts, codes // _PAGE)
        return tf.gather(self._values, starts + codes % _PAGE)


class Replacements:
    """Texts that replace characters, with the numbers 1, 2 and so on; 0 stands for no change."""

    def __init__(self, texts: list[str]) -> None:
        self.lengths = np.array([1, *map(len, texts)], np.int32)
        self._starts = np.cumsum(self.lengths, dtype=np.int32) - self.lengths
        self._codes = np.array([0, *(ord(c) for text in texts for c in text)], np.int32)

    def __call__(self, codes: tf.Tensor, numbers: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Return the new code points, the place of each in `codes`, and in its replacement."""
        lengths = tf.gather(self.lengths, numbers)
        owners = tf.repeat(tf.range(tf.size(codes)), lengths)
        within = tf.range(tf.size(owners)) - tf.gather(tf.cumsum(lengths, exclusive=True), owners)
        of_owners = tf.gather(numbers, owners)
        new = tf.gather(self._codes, tf.gather(self._starts, of_owners) + within)
        return tf.where(of_owners > 0, new, tf.gather(codes, owners)), owners, within

    def apply(self, text: Characters, numbers: tf.Tensor) -> Characters:
        """Replace characters. Each new character comes from the one that it replaces."""

        def replaced() -> Characters:
            codes, owners, _ = self(text.codes, numbers)
            return text.take(owners)._replace(codes=codes)

        return tf.cond(tf.reduce_any(numbers > 0), replaced, lambda: text)


def map_characters(new: Mapping[int, str]) -> Step:
    """Replace each character on its own."""
    numbers = CodeTable({code: number for number, code in enumerate(new, 1)})
    replacements = Replacements([*new.values()])
    return lambda text: replacements.apply(text, numbers(text.codes))


def normal_form(form: str) -> Step:
    """Bring texts into a Unicode normalization form, such as `"NFKC"`."""

    def step(text: Characters) -> Characters:
        first = tf.where(text.starts_row())[:, 0]
        before = tf.RaggedTensor.from_row_starts(text.codes, first, validate=False)
        after = decode(normalize(encode(before), form))
        places = sources(before, after, form)
        rows = tf.gather(tf.gather(text.rows, first), after.value_rowids())
        return Characters(after.flat_values, tf.gather(text.sources, places), rows)

    return step


def replace_runs(codes: Iterable[int], singles: Iterable[int], content: str) -> Step:
    """Replace two or more of some characters, and one of `singles`, with `content`."""
    roles = CodeTable(dict.fromkeys(codes, 1) | dict.fromkeys(singles, 2))
    replacements = Replacements([content, ""])

    def step(text: Characters) -> Characters:
        role = roles(text.codes)
        follows = (role > 0) & ~text.starts_row() & (previous(role, 0) > 0)
        goes_on = following(follows, False)
        is_last = tf.cast(follows | (role == 2), tf.int32)
        return replacements.apply(text, tf.where(goes_on, 2, is_last))

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
        return replacements.apply(
            text, tf.where(is_last, 1, tf.where(inside, 2, tf.zeros_like(place)))
        )

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
