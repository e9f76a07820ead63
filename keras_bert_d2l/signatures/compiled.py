"""An encoder that XLA compiles inside a SavedModel, once for each of a few shapes.

XLA turns the many small operations between two matrix products into one loop, which saves most of
the time of short texts. It compiles a function for every shape of its inputs, so rows and lengths
are padded to a short list of shapes. Larger batches run uncompiled: there, matrix products take
most of the time.

B: rows, T: tokens in a row, D: hidden width.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_bert_d2l.config import BERTConfig

MOST_TOKENS = 128
"""Maximum number of tokens in a compiled batch, including padding."""
MOST_ROWS = 8
"""Maximum number of rows in a compiled batch."""
_SHORTEST = 16  # tokens

Encode = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
"""A function from `tokens`, `segments` and `valid_lens` to vectors `(B, T, D)`."""


def compiled_lengths(max_len: int) -> tuple[int, ...]:
    """Return the lengths of compiled rows: 16, 24, 32, 48, 64, 96, ..., and `max_len`.

    Each length is at most half as large again as the one before.
    """
    powers = [_SHORTEST << number for number in range(max_len.bit_length())]
    lengths = sorted([*powers, *(power + power // 2 for power in powers)])
    most = min(max_len, MOST_TOKENS)
    return (*(length for length in lengths if length < most), most)


def compiled_shapes(max_len: int) -> list[tuple[int, int]]:
    """Return all pairs of rows and tokens per row that XLA compiles: at most 16."""
    return [
        (rows, length)
        for length in compiled_lengths(max_len)
        for rows in _powers_of_two()
        if rows * length <= MOST_TOKENS
    ]


def _powers_of_two() -> list[int]:
    return [2**number for number in range(MOST_ROWS.bit_length())]


class CompiledEncoder:
    """An encoder that runs compiled for small batches and as it is for the others.

    Args:
        encode: The encoder as a function for any shape.
        compiled: The same function, compiled by XLA.
        config: Their architecture.

    Call arguments: those of `Encode`, int32 `(B, T)`, `(B, T)` and `(B,)`.

    Returns: the vectors, `(B, T, D)`.
    """

    def __init__(self, encode: Encode, compiled: Encode, config: BERTConfig) -> None:
        self._encode, self._compiled = encode, compiled
        self._rows = np.array(_powers_of_two(), np.int32)
        self._lengths = np.array(compiled_lengths(config.max_len), np.int32)
        self._pad_id = config.pad_id

    def __call__(self, tokens: tf.Tensor, segments: tf.Tensor, valid_lens: tf.Tensor) -> tf.Tensor:
        B, T = tf.unstack(tf.shape(tokens))
        rows, length = _next(self._rows, B), _next(self._lengths, T)
        batch = tokens, segments, valid_lens
        return tf.cond(
            (rows >= B) & (length >= T) & (rows * length <= MOST_TOKENS),
            lambda: self._padded(*batch, more_rows=rows - B, more_tokens=length - T)[:B, :T],
            lambda: self._encode(*batch),
        )

    def _padded(self, *batch: tf.Tensor, more_rows: tf.Tensor, more_tokens: tf.Tensor) -> tf.Tensor:
        tokens, segments, valid_lens = batch
        around = [[0, more_rows], [0, more_tokens]]
        return self._compiled(
            tf.pad(tokens, around, constant_values=self._pad_id),
            tf.pad(segments, around),
            tf.pad(valid_lens, around[:1], constant_values=1),
        )


def _next(sizes: np.ndarray, size: tf.Tensor) -> tf.Tensor:
    """Return the smallest of the sizes that is at least `size`, or the largest."""
    index = tf.searchsorted(sizes, size[None])[0]
    return tf.gather(sizes, tf.minimum(index, len(sizes) - 1))
