"""Where tokens stand in the text that they were made of.

B: texts in the batch, T: tokens in a row. Offsets count characters (code points, as Python's
strings do) of the original text; an end is that of the last character plus one.
"""

import unicodedata
from typing import Any

import tensorflow as tf

from keras_bert_d2l.text.normalization import MARK, Normalization, decode, encode
from keras_bert_d2l.text.tokenizer.wordpiece import Pieces, WordPieces


def pieces_with_offsets(
    texts: tf.Tensor, normalization: Normalization, word_pieces: WordPieces
) -> Pieces:
    """Cuts texts into pieces and says where each stands in the original text.

    Every character is normalised by itself, too: its share of the bytes of the normalised text
    leads from a piece back to the characters. What an accent leaves behind does not count: the
    piece `e` of `e` and a combining accent ends before the accent.

    Args:
        texts: Strings `(B,)`.
        normalization: What makes the normalised text.
        word_pieces: What cuts it.

    Returns: three ragged tensors int32 `(B, None)`: the ids, and the characters at which each
        piece starts and ends.
    """
    codes = decode(normalization.mark(texts))
    ids, starts, ends = word_pieces(normalization.clean(encode(codes)))

    different, place = tf.unique(codes.flat_values)
    lengths = tf.strings.length(normalization.clean(encode(different[:, tf.newaxis])))
    byte_ends = tf.cumsum(tf.cast(tf.gather(lengths, place), tf.int64))
    byte_ends = tf.concat([[0], byte_ends], axis=0)  # the bytes of the first n characters
    characters = tf.cumsum(_is_of_the_text(codes.flat_values), exclusive=True)

    row_starts = tf.gather(codes.row_starts(), ids.value_rowids())
    first_byte, first_character = (
        tf.gather(byte_ends, row_starts),
        tf.gather(characters, row_starts),
    )

    def character_of(byte: tf.Tensor) -> tf.Tensor:
        place = tf.searchsorted(byte_ends[1:], first_byte + byte, side="right", out_type=tf.int64)
        return tf.gather(characters, place) - first_character

    return (
        ids,
        starts.with_flat_values(character_of(starts.flat_values)),
        ends.with_flat_values(character_of(ends.flat_values - 1) + 1),
    )


def tokens_at(starts: Any, ends: Any, characters: Any) -> tf.Tensor:
    """Returns which token a character of the original text belongs to.

    Args:
        starts: Where tokens start, int `(B, T)`, dense or ragged.
        ends: Where they end; equal to the start for what is no part of the text.
        characters: One character of each text, int `(B,)`.

    Returns: the (first such) token's position in its row, int32 `(B,)`; -1 where no token has the
        character: white space, a control character, an accent of its own, or what was cut off.
    """
    characters = tf.convert_to_tensor(characters, tf.int32)
    return token_spans(starts, ends, characters, characters + 1)[:, 0]


def token_spans(starts: Any, ends: Any, first: Any, end: Any) -> tf.Tensor:
    """Returns the tokens that a stretch of the original text belongs to.

    Args:
        starts: Where tokens start, int `(B, T)`, dense or ragged.
        ends: Where they end; equal to the start for what is no part of the text.
        first: First character of the stretch in each text, int `(B,)`.
        end: Its last character plus one, int `(B,)`.

    Returns: positions of the first and the last token that share a character with the stretch,
        int32 `(B, 2)`; -1 and -1 where no token does.
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
    """Returns the end of a stretch with the accents of their own that follow.

    Normalisation may drop them, so that no token has them; they belong to the letter before.

    Args:
        text: The text.
        end: The stretch's last character plus one.
    """
    while end < len(text) and unicodedata.category(text[end]) == "Mn":
        end += 1
    return end


def _is_of_the_text(codes: tf.Tensor) -> tf.Tensor:
    """Returns 0 for the spaces that marking has put around special tokens and 1 for the rest."""
    is_mark = codes == ord(MARK)
    is_left = is_mark & (tf.cumsum(tf.cast(is_mark, tf.int32)) % 2 == 1)
    is_right = is_mark & ~is_left
    # A space was put before each left mark and after each right one.
    is_added = tf.concat([is_left[1:], [False]], 0) | tf.concat([[False], is_right[:-1]], 0)
    return tf.cast(~is_added, tf.int32)


def _dense(rows: Any) -> tf.Tensor:
    if isinstance(rows, tf.RaggedTensor):
        rows = rows.to_tensor()
    return tf.convert_to_tensor(rows, tf.int32)
