"""Strings in, stretches of their characters out, as ops of TensorFlow itself.

B texts in a batch, N stretches. A character is a code point, as in Python's strings. Each byte
that is not UTF-8 counts as one, and comes out as the replacement character: JSON knows UTF-8 alone.
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

    def stretches(self, rows: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """Returns stretches of the texts.

        Args:
            rows: The text that each is of, int `(N,)`.
            starts: The first character of each, int32 `(N,)`.
            ends: Its last character plus one, int32 `(N,)`.

        Returns: strings `(N,)`.
        """
        # `tf.strings.substr` would need a copy of the whole text for each stretch.
        first = self._before(rows)
        places = tf.ragged.range(first + starts, first + ends)
        return encode(places.with_values(tf.gather(self._codes.values, places.values)))

    def behind_accents(self, rows: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """Returns the ends `(N,)` of stretches with the accents of their own that follow."""
        different, place = tf.unique(self._codes.values)
        is_accent = tf.strings.regex_full_match(encode(different[:, tf.newaxis]), _ACCENT)
        no_accents = tf.cast(tf.where(~tf.gather(is_accent, place))[:, 0], tf.int32)
        text_ends = tf.cast(tf.gather(self._codes.row_limits(), rows), tf.int32)
        first = self._before(rows)
        number = tf.searchsorted(no_accents, first + ends)
        # Where nothing but accents follows, the last text ends.
        following = tf.concat([no_accents, [tf.size(self._codes.values)]], axis=0)
        return tf.minimum(tf.gather(following, number), text_ends) - first

    def _before(self, rows: tf.Tensor) -> tf.Tensor:
        """How many characters stand before the text of each row."""
        return tf.cast(tf.gather(self._codes.row_starts(), rows), tf.int32)
