"""Split texts into words by a `Split`, as TensorFlow operations. B: texts."""

import tensorflow as tf

from keras_bert_d2l.text.normalization import rows_of_values, split_at
from keras_bert_d2l.text.word_patterns import Split

WORD_END = b"\xfe"  # does not occur in UTF-8, and no pattern matches it
_BETWEEN = rb"\1" + WORD_END + rb"\2"


def mark_words(texts: tf.Tensor, words: Split) -> tf.Tensor:
    """Put `WORD_END` after each word of texts, strings `(B,)`, perhaps several times."""
    texts = tf.strings.regex_replace(texts, words.last_space, _BETWEEN)
    return tf.strings.regex_replace(texts, words.pattern, rb"\0" + WORD_END)


def split_words(texts: tf.Tensor, split: Split) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Return the parts of texts `(B,)`, ragged strings, and whether each value is a word."""
    if split.last_space:
        texts = tf.strings.regex_replace(texts, split.last_space, _BETWEEN)
    parts = split_at(texts, split.pattern, split.sides)
    place = tf.range(parts.row_splits[-1]) - tf.gather(parts.row_splits, rows_of_values(parts))
    is_word = tf.where(place % 2 == 1, split.keeps_matches, split.keeps_others)
    return parts, is_word & (parts.flat_values != "")
