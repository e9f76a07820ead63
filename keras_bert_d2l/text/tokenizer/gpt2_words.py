r"""GPT-2's rule for splitting texts into words, as regular expressions of TensorFlow.

The rule is a regular expression with a look-ahead, which TensorFlow's regular expressions lack:
`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`. The look-ahead
keeps the last of several spaces for the word that follows them. It is replaced by a first pass,
which ends a word before this space.

Source: github.com/openai/gpt-2, `src/encoder.py`.
"""

import functools

import tensorflow as tf

from keras_bert_d2l.text.normalization import character_class
from keras_bert_d2l.text.unicode_gaps import letters_and_numbers, white_space

WORD_END = b"\xfe"  # does not occur in UTF-8, and no pattern matches it


def mark_words(texts: tf.Tensor) -> tf.Tensor:
    """Put `WORD_END` after each word.

    Args:
        texts: Strings `(B,)` in UTF-8.

    Returns:
        Strings `(B,)`. There may be more than one mark between two words.
    """
    last_space, word = _patterns()
    texts = tf.strings.regex_replace(texts, last_space, rb"\1" + WORD_END + rb"\2")
    return tf.strings.regex_replace(texts, word, rb"\0" + WORD_END)


@functools.cache
def _patterns() -> tuple[str, str]:
    """Return the patterns of the last of several spaces before a word, and of a word."""
    letter, number, space = map(character_class, (*letters_and_numbers(), white_space()))
    return (
        f"([{space}])([{space}][^{space}])",
        f"'s|'t|'re|'ve|'m|'ll|'d| ?[{letter}]+| ?[{number}]+"
        f"| ?[^{space}{letter}{number}]+|[{space}]+",
    )
