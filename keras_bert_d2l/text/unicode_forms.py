"""Unicode normalization forms, and other maps of code points, as TensorFlow ops.

N: characters of all texts together.

Source: Unicode Standard Annex 15; Unicode Standard, section 3.11.
"""

import unicodedata
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert_d2l.text.unicode_gaps import NUM_CODES, used_codes

_PAGE = 128
_NUM_CLASSES = 256


def previous(values: tf.Tensor, first: object) -> tf.Tensor:
    """Return the value before each one."""
    return tf.concat([tf.fill([1], tf.cast(first, values.dtype)), values], 0)[:-1]


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
        self._values = _constant(np.frombuffer(b"".join(pages), np.int32))
        self._starts = _constant(np.array(starts, np.int32))

    def __call__(self, codes: tf.Tensor) -> tf.Tensor:
        starts = tf.gather(self._starts, codes // _PAGE)
        return tf.gather(self._values, starts + codes % _PAGE)


class Replacements:
    """Texts that replace characters, with the numbers 1, 2 and so on; 0 stands for no change."""

    def __init__(self, texts: list[str]) -> None:
        lengths = np.array([1, *map(len, texts)], np.int32)
        self.lengths = _constant(lengths)
        self._starts = _constant(np.cumsum(lengths, dtype=np.int32) - lengths)
        self._codes = _constant(np.array([0, *(ord(c) for text in texts for c in text)], np.int32))

    def __call__(self, codes: tf.Tensor, numbers: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Return the new code points, the place of each in `codes`, and in its replacement."""
        lengths = tf.gather(self.lengths, numbers)
        owners = tf.repeat(tf.range(tf.size(codes)), lengths)
        within = tf.range(tf.size(owners)) - tf.gather(tf.cumsum(lengths, exclusive=True), owners)
        of_owners = tf.gather(numbers, owners)
        new = tf.gather(self._codes, tf.gather(self._starts, of_owners) + within)
        return tf.where(of_owners > 0, new, tf.gather(codes, owners)), owners, within


class NormalForm:
    """Brings texts into a normalization form, by the version of Unicode that Python has.

    Args:
        form: Name of the form, such as `"NFKC"`.
        inert: Characters that do not change, move or join with others.

    Call arguments:
        codes: Code points of texts, int32 `(N,)`.
        rows: The text of each, in ascending order, int32 `(N,)`.

    Returns:
        The new code points and their texts, and the place in `codes` of the character that each
        comes from. This is the alignment of Hugging Face's tokenizers: a character belongs to the
        new character that contains the first part of its decomposition. A new character to which
        none belongs comes from the last character before it.
    """

    def __init__(self, form: str, inert: Collection[int] = ()) -> None:
        decomposition: Any = form.replace("C", "D")
        used = [chr(code) for code in used_codes() if code not in inert]
        pairs = ((c, unicodedata.normalize(decomposition, c)) for c in used)
        new = {c: text for c, text in pairs if c != text}
        self._numbers = CodeTable({ord(c): number for number, c in enumerate(new, 1)})
        self._replacements = Replacements([*new.values()])
        self._classes = CodeTable({ord(c): k for c in used if (k := unicodedata.combining(c))})
        self._keys = None
        if form.endswith("C"):
            keys, codes = np.array(sorted(_pairs(inert).items())).T
            keys = np.append(keys, NUM_CODES**2)  # larger than any key
            self._keys, self._joined = _constant(keys), _constant(codes.astype(np.int32))

    def __call__(self, codes: tf.Tensor, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        codes, owners, within = self._replacements(codes, self._numbers(codes))
        rows, is_first = tf.gather(rows, owners), tf.cast(within == 0, tf.int32)
        classes = self._classes(codes)
        starts = (classes == 0) | (rows != previous(rows, -1))

        def ordered() -> tuple[tf.Tensor, ...]:
            """Sort the marks after each starter by their classes."""
            keys = tf.cumsum(tf.cast(starts, tf.int64)) * _NUM_CLASSES + tf.cast(classes, tf.int64)
            order = tf.argsort(keys, stable=True)
            return tuple(tf.gather(values, order) for values in (codes, classes, is_first))

        is_wrong = ~starts & (classes < previous(classes, 0))
        codes, classes, is_first = tf.cond(
            tf.reduce_any(is_wrong), ordered, lambda: (codes, classes, is_first)
        )
        if self._keys is None:
            return codes, rows, tf.maximum(tf.cumsum(is_first) - 1, 0)
        *_, codes, rows, _, num_sources = tf.while_loop(
            lambda goes_on, *_: goes_on,
            self._compose,
            [True, codes, rows, classes, is_first],
            shape_invariants=[tf.TensorShape(shape) for shape in ([], *[[None]] * 4)],
        )
        start = tf.cumsum(num_sources, exclusive=True)
        return codes, rows, tf.maximum(start - tf.cast(num_sources == 0, tf.int32), 0)

    def _compose(
        self,
        _: tf.Tensor,
        codes: tf.Tensor,
        rows: tf.Tensor,
        classes: tf.Tensor,
        num_sources: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:
        """Join each starter with the first mark with which it can be joined."""
        places = tf.range(tf.size(codes))
        is_starter = tf.cast(classes == 0, tf.int32)
        starters = tf.concat([[0], tf.reshape(tf.where(classes == 0), [-1])], 0)
        starter = tf.gather(tf.cast(starters, tf.int32), tf.cumsum(is_starter, exclusive=True))
        key = tf.cast(tf.gather(codes, starter), tf.int64) * NUM_CODES + tf.cast(codes, tf.int64)
        place = tf.searchsorted(self._keys, key)
        is_next = (starter == places - 1) | (previous(classes, 0) < classes)
        can_join = is_next & (tf.gather(self._keys, place) == key)
        can_join &= tf.gather(rows, starter) == rows
        number = tf.cumsum(tf.cast(can_join, tf.int32), exclusive=True)
        can_join &= number == tf.gather(number, starter)
        joined, kept = tf.where(can_join), tf.reshape(tf.where(~can_join), [-1])
        into = tf.gather_nd(starter, joined)[:, tf.newaxis]
        new = tf.gather(self._joined, tf.gather_nd(place, joined))
        codes = tf.tensor_scatter_nd_update(codes, into, new)
        num_sources = tf.tensor_scatter_nd_add(num_sources, into, tf.gather_nd(num_sources, joined))
        values = (tf.gather(x, kept) for x in (codes, rows, classes, num_sources))
        return tf.size(joined) > 0, *values


def _pairs(inert: Collection[int]) -> dict[int, int]:
    """Return the characters that pairs of characters join to, by `first * NUM_CODES + second`."""
    found = {}
    for code in used_codes():
        parts = unicodedata.normalize("NFD", chr(code))
        if len(parts) > 1 and unicodedata.normalize("NFC", parts) == chr(code):
            first, second = ord(unicodedata.normalize("NFC", parts[:-1])), ord(parts[-1])
            if not {first, second, code} & {*inert}:
                found[first * NUM_CODES + second] = code
    return found


def _constant(values: np.ndarray) -> tf.Tensor:
    """Return a tensor that all graphs share."""
    with tf.init_scope(), tf.device("CPU"):
        return tf.constant(values)
