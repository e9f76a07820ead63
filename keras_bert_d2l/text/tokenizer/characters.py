"""Change the characters of texts as Hugging Face's normalizers do, and remember their places.

Each step takes `Characters` and returns them. N: characters of all texts together.

Source: github.com/huggingface/tokenizers, `tokenizer/normalizer.rs` and `normalizers`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert_d2l.text.definition import FORMS
from keras_bert_d2l.text.normalization import (
    decode,
    encode,
    rows_of_values,
    split_at,
    tensorflow_text,
)
from keras_bert_d2l.text.unicode_gaps import (
    NUM_CODES,
    character_class,
    inert_characters,
    white_space,
)

SPACE = ord(" ")
_PAGE = 128
STABLE = {  # characters that no text in these ranges changes or combines with
    form: r"[\x{0}-\x{2ff}]*" if form == "NFC" else r"[\x{0}-\x{7f}]*" for form in FORMS
}


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
        after = decode(_in_form(encode(before), form))
        places = _sources(before, after, form)
        rows = tf.gather(tf.gather(text.rows, first), after.value_rowids())
        return Characters(after.flat_values, tf.gather(text.sources, places), rows)

    return step


def _in_form(texts: tf.Tensor, form: str) -> tf.Tensor:
    """Bring texts into a normalization form, as Hugging Face's tokenizers do.

    Their tables are older than those of TensorFlow. Characters that they do not know neither change
    nor move, so the texts before and after such a character are normalized separately.

    Args:
        texts: Strings `(B,)`.
        form: One of `FORMS`.

    Returns:
        Strings `(B,)`.
    """
    inert = f"[{character_class(inert_characters())}]"
    places = tf.where(~tf.strings.regex_full_match(texts, STABLE[form]))

    def changed() -> tf.Tensor:
        some = tf.gather_nd(texts, places)
        parts = split_at(some, inert)
        values = parts.flat_values
        is_inert = tf.strings.regex_full_match(values, inert)
        values = tf.where(is_inert, values, tensorflow_text().normalize_utf8(values, form))
        some = tf.strings.reduce_join(parts.with_flat_values(values), axis=1)
        return tf.tensor_scatter_nd_update(texts, places, some)

    return tf.cond(tf.size(places) > 0, changed, lambda: texts)


def _sources(before: tf.RaggedTensor, after: tf.RaggedTensor, form: str) -> tf.Tensor:
    """Return the character that each character of a normalized text comes from.

    This is the alignment of Hugging Face's tokenizers. An original character belongs to the new
    character that contains the first character of its decomposition. A new character to which none
    belongs comes from the last original character before it.

    Args:
        before: Code points of texts, int32 `(B, None)`.
        after: Those of the normalized texts.
        form: One of `FORMS`.

    Returns:
        The positions of the sources in the flat values of `before`, int64 `(N,)`.
    """
    decomposition = form.removesuffix("C").removesuffix("D") + "D"

    def elements(codes: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the characters of all decompositions: owners and sorted order."""
        parts = decode(_in_form(encode(codes.flat_values[:, tf.newaxis]), decomposition))
        owners = rows_of_values(parts)
        rows = tf.gather(rows_of_values(codes), owners)
        keys = rows * NUM_CODES + tf.cast(parts.flat_values, tf.int64)
        return owners, tf.argsort(keys, stable=True)

    def aligned() -> tf.Tensor:
        # Both have the same elements. Equal elements of a text keep their order.
        old_owners, old_order = elements(before)
        new_owners, new_order = elements(after)
        is_first = tf.concat([[1], tf.cast(old_owners[1:] != old_owners[:-1], tf.int64)], 0)
        is_first = tf.scatter_nd(
            new_order[:, None], tf.gather(is_first, old_order), [tf.size(new_order)]
        )
        num_sources = tf.math.segment_sum(is_first, new_owners)
        start = tf.cumsum(num_sources, exclusive=True)
        return tf.maximum(start - tf.cast(num_sources == 0, tf.int64), 0)

    same = tf.size(before.flat_values) == tf.size(after.flat_values)
    is_same = tf.cond(
        same, lambda: tf.reduce_all(before.flat_values == after.flat_values), lambda: False
    )
    return tf.cond(is_same, lambda: tf.range(tf.size(after.flat_values, tf.int64)), aligned)


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
