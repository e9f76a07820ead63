"""Character spans of texts, computed with TensorFlow's built-in ops.

B: texts in a batch, N: spans. A character is a code point, as in Python strings. Each byte that
is not UTF-8 counts as one character and becomes the replacement character, because JSON is UTF-8.
"""

import tensorflow as tf

from keras_bert_d2l.text.normalization import encode

_ACCENT = r"\p{Mn}"


class Characters:
    """The characters of texts.

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

    def ends_with_accents(self, rows: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """Extend the ends `(N,)` of spans past the combining accents that follow."""
        distinct, place = tf.unique(self._codes.values)
        is_accent = tf.strings.regex_full_match(encode(distinct[:, tf.newaxis]), _ACCENT)
        no_accents = tf.cast(tf.where(~tf.gather(is_accent, place))[:, 0], tf.int32)
        text_ends = tf.cast(tf.gather(self._codes.row_limits(), rows), tf.int32)
        offset = self._num_before(rows)
        number = tf.searchsorted(no_accents, offset + ends)
        # If only accents follow, the span ends where the last text ends.
        following = tf.concat([no_accents, [tf.size(self._codes.values)]], axis=0)
        return tf.minimum(tf.gather(following, number), text_ends) - offset

    def _num_before(self, rows: tf.Tensor) -> tf.Tensor:
        """Return the total number of characters in the texts before each row's text."""
        return tf.cast(tf.gather(self._codes.row_starts(), rows), tf.int32)
