"""The characters of texts, for the places of words and answers.

B: texts in a batch, N: spans.
"""

import tensorflow as tf

from keras_bert_d2l.text.normalization import character_class, encode
from keras_bert_d2l.text.unicode_gaps import white_space
from keras_bert_d2l.text.unspaced import UNSPACED

_ACCENT, _SPACE = r"\p{Mn}", f"[{character_class(white_space())}]"
_UNSPACED = f"[{character_class(UNSPACED)}]"


class Characters:
    """The characters of texts, computed with TensorFlow's built-in ops.

    A character is a code point, as in Python strings. Each byte that is not UTF-8 counts as one
    character and becomes the replacement character, because JSON is UTF-8.

    Args:
        texts: Strings `(B,)`.
    """

    def __init__(self, texts: tf.Tensor) -> None:
        self._codes = tf.strings.unicode_decode(texts, "UTF-8")

    def spans(self, rows: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """Return spans of the texts.

        Args:
            rows: Index of the text of each span, int `(N,)`.
            starts: Index of the first character of each span, int32 `(N,)`.
            ends: Index after the last character of each span, int32 `(N,)`.

        Returns: strings `(N,)`.
        """
        # `tf.strings.substr` would need a copy of the complete text for each span.
        offset = self._num_before(rows)
        places = tf.ragged.range(offset + starts, offset + ends)
        return encode(places.with_values(tf.gather(self._codes.values, places.values)))

    def whole(
        self, rows: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor, has_spaces: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Exclude the spaces around spans of tokens, and move their ends past combining accents.

        Tokens of some tokenizers begin or end with spaces. Normalization may remove accents, so no
        token contains them. They belong to the letter before.

        Args:
            rows: Index of the text of each span, int `(N,)`.
            starts: Index of the first character of each span, int32 `(N,)`.
            ends: Index after the last character of each span, int32 `(N,)`.
            has_spaces: Whether tokens may contain spaces. Those of WordPiece do not.

        Returns: the starts and the ends, both `(N,)`.
        """
        if has_spaces:
            starts = self._past(_SPACE, rows, starts)
            ends = self._before_spaces(rows, ends)
        return starts, self._past(_ACCENT, rows, ends)

    def spaced(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.RaggedTensor]:
        """Return what `text.unspaced.spaced` does: strings `(B,)`, and int32 `(B, None)`."""
        codes = self._codes
        is_alone, is_space = self._are(_UNSPACED), self._are(_SPACE)
        is_alone, is_space = (x | tf.roll(x, 1, axis=0) for x in (is_alone, is_space))
        lengths = tf.cast(codes.row_lengths(), tf.int32)
        places = tf.ragged.range(lengths)
        has_space = is_alone & ~is_space & ~self._are(r"\p{M}") & (places.values > 0)
        ends = tf.cumsum(1 + tf.cast(has_space, tf.int64))
        splits = tf.gather(tf.concat([[0], ends], 0), codes.row_splits)
        source = tf.searchsorted(ends, tf.range(splits[-1]), side="right")
        is_new = tf.gather(has_space, source) & (source == tf.roll(source, -1, axis=0))
        found = tf.where(is_new, ord(" "), tf.gather(codes.values, source))
        places = tf.RaggedTensor.from_row_splits(tf.gather(places.values, source), splits)
        # A text that stays as it is keeps its bytes, also those that are not UTF-8.
        is_same = places.row_lengths() == codes.row_lengths()
        parts = tf.where(is_same, texts, encode(places.with_values(found)))
        return parts, tf.concat([places, lengths[:, tf.newaxis]], axis=1)

    def _before_spaces(self, rows: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """Move the ends `(N,)` of spans before the spaces there."""
        offset = self._num_before(rows)
        others = tf.concat([[-1], self._others(_SPACE)], axis=0)
        last = tf.gather(others, tf.searchsorted(others, offset + ends) - 1)
        return tf.maximum(last + 1 - offset, 0)

    def _past(self, pattern: str, rows: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
        """Move places in texts, int32 `(N,)`, past the following characters of a pattern."""
        others = self._others(pattern)
        text_ends = tf.cast(tf.gather(self._codes.row_limits(), rows), tf.int32)
        offset = self._num_before(rows)
        number = tf.searchsorted(others, offset + places)
        # If only such characters follow, the place is where the last text ends.
        following = tf.concat([others, [tf.size(self._codes.values)]], axis=0)
        return tf.minimum(tf.gather(following, number), text_ends) - offset

    def _others(self, pattern: str) -> tf.Tensor:
        """Return the places of the characters that do not match a pattern, int32 `(M,)`."""
        return tf.cast(tf.where(~self._are(pattern))[:, 0], tf.int32)

    def _are(self, pattern: str) -> tf.Tensor:
        """Return whether each character matches a pattern, bool `(M,)`."""
        distinct, place = tf.unique(self._codes.values)
        matches = tf.strings.regex_full_match(encode(distinct[:, tf.newaxis]), pattern)
        return tf.gather(matches, place)

    def _num_before(self, rows: tf.Tensor) -> tf.Tensor:
        """Return the total number of characters in the texts before each row's text."""
        return tf.cast(tf.gather(self._codes.row_starts(), rows), tf.int32)
