"""Offsets: the characters of the original text that each token comes from.

B: texts in the batch, T: tokens in a row. Offsets count characters (code points, as in Python
strings) of the original text. An end offset is the last character plus one.
"""

import unicodedata

import tensorflow as tf

from keras_bert_d2l.text.normalization import HIDDEN, MARK, Normalization, decode, encode
from keras_bert_d2l.text.tokenizer.wordpiece import Pieces, WordPieces, rows_of_values
from keras_bert_d2l.types import Tensor


def pieces_with_offsets(
    texts: tf.Tensor, normalization: Normalization, word_pieces: WordPieces
) -> Pieces:
    """Split texts into pieces and locate each piece in the original text.

    Each character is also normalized on its own. The number of bytes it contributes to the
    normalized text maps the bytes of a piece back to characters. A character that contributes
    nothing does not belong to any piece: the piece `e` of `e` and a combining accent ends before
    the accent.

    Args:
        texts: Strings `(B,)`.
        normalization: How to normalize the texts.
        word_pieces: How to split the normalized texts.

    Returns:
        Three ragged tensors `(B, None)`: the ids, int32, and the character offsets at which each
        piece starts and ends.
    """
    codes = decode(normalization.mark(texts))
    ids, starts, ends = word_pieces(normalization.clean(encode(codes)))

    different, place = tf.unique(codes.flat_values)
    lengths = tf.strings.length(normalization.clean(encode(different[:, tf.newaxis])))
    byte_ends = tf.cumsum(tf.cast(tf.gather(lengths, place), tf.int64))
    byte_ends = tf.concat([[0], byte_ends], axis=0)  # number of bytes of the first n characters
    is_of_the_text = _is_of_the_text(codes.flat_values, bool(normalization.special_tokens))
    characters = tf.cumsum(tf.cast(is_of_the_text, tf.int32), exclusive=True)

    row_starts = tf.gather(codes.row_starts(), rows_of_values(ids))
    first_byte = tf.gather(byte_ends, row_starts)
    first_character = tf.gather(characters, row_starts)

    def character_of(byte: tf.Tensor) -> tf.Tensor:
        place = tf.searchsorted(byte_ends[1:], first_byte + byte, side="right", out_type=tf.int64)
        return tf.gather(characters, place) - first_character

    return (
        ids,
        starts.with_flat_values(character_of(starts.flat_values)),
        ends.with_flat_values(character_of(ends.flat_values - 1) + 1),
    )


def token_spans(starts: Tensor, ends: Tensor, first: Tensor, end: Tensor) -> tf.Tensor:
    """Find the tokens that cover a range of characters of the original text.

    Args:
        starts: Start of each token, int `(B, T)`, dense or ragged.
        ends: End of each token; equal to the start for positions outside the text.
        first: First character of the range in each text, int `(B,)`.
        end: Last character of the range plus one, int `(B,)`.

    Returns:
        The positions of the first and the last token that overlap the range, int32 `(B, 2)`. Both
        are -1 if no token does, as for white space, control characters, combining accents and
        truncated text.
    """
    starts, ends = _dense(starts), _dense(ends)
    first, end = (tf.convert_to_tensor(x, tf.int32)[:, tf.newaxis] for x in (first, end))
    shared = tf.pad((ends > first) & (starts < end) & (starts < ends), [[0, 0], [1, 1]])
    shared = tf.cast(shared, tf.int32)
    first_token = tf.argmax(shared, axis=1, output_type=tf.int32)
    last_token = tf.shape(shared)[1] - 1 - tf.argmax(shared[:, ::-1], 1, output_type=tf.int32)
    none = tf.reduce_max(shared, axis=1) == 0
    span = tf.stack([first_token, last_token], axis=1) - 1
    return tf.where(none[:, tf.newaxis], -1, span)


def behind_accents(text: str, end: int) -> int:
    """Extend the end of a character range past the combining accents that follow.

    Normalization may remove accents, so no token contains them. They belong to the letter before.

    Args:
        text: The text.
        end: Last character of the range plus one.
    """
    while end < len(text) and unicodedata.category(text[end]) == "Mn":
        end += 1
    return end


def _is_of_the_text(codes: tf.Tensor, has_hidden: bool) -> tf.Tensor:
    """Return False for characters that `Normalization.mark` added around special tokens."""

    def next_to(flags: tf.Tensor) -> tf.Tensor:
        return tf.concat([flags[1:], [False]], 0)

    def behind(flags: tf.Tensor) -> tf.Tensor:
        return tf.concat([[False], flags[:-1]], 0)

    is_mark = codes == ord(MARK)
    is_left = is_mark & (tf.cumsum(tf.cast(is_mark, tf.int32)) % 2 == 1)
    is_right = is_mark & ~is_left
    # A space was added before each left mark and after each right one.
    is_added = next_to(is_left) | behind(is_right)
    if has_hidden:
        # The marks around hidden characters were added, too. The right one ends the token, so the
        # first hidden character counts as added in its place.
        is_left &= next_to(codes >= HIDDEN)
        is_added |= is_left | behind(is_left)
    return ~is_added


def _dense(rows: Tensor) -> tf.Tensor:
    if isinstance(rows, tf.RaggedTensor):
        rows = rows.to_tensor()
    return tf.convert_to_tensor(rows, tf.int32)
