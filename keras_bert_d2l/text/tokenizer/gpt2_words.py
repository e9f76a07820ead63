r"""GPT-2's rule for splitting texts into words, on code points.

The rule is a regular expression with a look-ahead, which TensorFlow's regular expressions lack:
`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`. It depends on at most
three characters before or after a place, so it is applied to all characters at once.

N: characters of all texts.

Source: github.com/openai/gpt-2, `src/encoder.py`.
"""

import functools

import numpy as np
import tensorflow as tf

from keras_bert_d2l.text.tokenizer.characters import following, previous
from keras_bert_d2l.text.unicode_gaps import letters_and_numbers, white_space

_NONE, _OTHER, _LETTER, _NUMBER, _SPACE = range(5)  # kinds of characters; none is outside the text
_PAGE = 256


def word_starts(codes: tf.Tensor, is_first: tf.Tensor) -> tf.Tensor:
    """Return the characters at which a word starts, bool `(N,)`.

    Args:
        codes: Code points of all texts, int32 `(N,)`.
        is_first: Whether each is the first character of its text, bool `(N,)`.
    """
    is_last = following(is_first, True)

    def before(values: tf.Tensor) -> tf.Tensor:
        """Return the values of the characters before, and 0 or False at the start of all texts."""
        return previous(values, 0)

    def after(values: tf.Tensor) -> tf.Tensor:
        """Return the values of the next characters, and 0 at the end of a text."""
        return tf.where(is_last, 0, following(values, 0))

    kinds = _kinds(codes)
    next_kinds = after(kinds)
    is_end_of_spaces = (kinds == _SPACE) & (next_kinds != _SPACE) & (next_kinds != _NONE)
    starts = is_first | (kinds != before(kinds)) | is_end_of_spaces
    starts &= is_first | ~before(is_end_of_spaces & (codes == ord(" ")))

    one, two = after(codes), after(after(codes))
    is_apostrophe = starts & (codes == ord("'"))
    is_short = is_apostrophe & _is_in(one, "stmd")
    is_long = is_apostrophe & (
        (_is_in(one, "rv") & (two == ord("e"))) | ((one == ord("l")) & (two == ord("l")))
    )
    starts &= is_first | ~before(is_short | is_long)
    return starts | before(before(is_short | before(is_long)))


def _is_in(codes: tf.Tensor, letters: str) -> tf.Tensor:
    return tf.reduce_any(codes[:, tf.newaxis] == [ord(letter) for letter in letters], axis=1)


def _kinds(codes: tf.Tensor) -> tf.Tensor:
    """Return the kind of each character, from a table in pages."""
    pages, contents = _table()
    page = tf.gather(pages, tf.minimum(codes // _PAGE, len(pages) - 1))
    return tf.gather(contents, page * _PAGE + codes % _PAGE)


@functools.cache
def _table() -> tuple[np.ndarray, np.ndarray]:
    """Return the page of each 256 characters, and the kinds of the characters of all pages."""
    letters, numbers = letters_and_numbers()
    kinds = np.full((max(letters) // _PAGE + 2) * _PAGE, _OTHER, np.int32)
    for kind, codes in ((_LETTER, letters), (_NUMBER, numbers), (_SPACE, white_space())):
        kinds[[*codes]] = kind
    contents, pages = np.unique(kinds.reshape(-1, _PAGE), axis=0, return_inverse=True)
    return pages.astype(np.int32).reshape(-1), contents.reshape(-1)
