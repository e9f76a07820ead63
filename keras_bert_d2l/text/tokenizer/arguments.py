"""Convert the texts, words and ids that a caller passes to tensors.

This module does not need tensorflow-text. B: texts in the batch, T: tokens in a row.
"""

from collections.abc import Sequence
from typing import TypeAlias

import tensorflow as tf

from keras_bert_d2l.checks import shown
from keras_bert_d2l.text_arguments import text_list
from keras_bert_d2l.types import Tensor

Texts: TypeAlias = str | Sequence[str] | Tensor
"""A string, a list of strings, or a string tensor `(B,)`."""


def as_texts(texts: Texts) -> tf.Tensor:
    """Convert texts to strings `(B,)`."""
    expected = "Texts must be a string, a list of strings or a string tensor (B,)."
    if not tf.is_tensor(texts):
        texts = text_list("texts", [texts] if isinstance(texts, bytes) else texts)
    try:
        tensor = tf.convert_to_tensor(texts, tf.string)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{expected} Received: {shown(texts)} ({type(texts).__name__})."
        ) from error
    if tensor.shape.rank is not None and tensor.shape.rank > 1:
        raise ValueError(
            f"{expected} Received: a tensor of shape {tensor.shape}. Flatten it first."
        )
    return tensor if tensor.shape.rank == 1 else tf.reshape(tensor, [-1])


def as_words(words: Sequence[Sequence[str]] | Tensor) -> tf.RaggedTensor:
    """Convert the words of texts to ragged strings `(B, None)`."""
    expected = "Words must be a list of words for each text, or ragged strings (B, None)."
    rows: Tensor = words
    if not isinstance(words, tf.RaggedTensor | tf.Tensor):
        found = text_list("words", words, words=True)
        is_flat = bool(found) and isinstance(found[0], str)
        rows = tf.constant(found) if is_flat else tf.ragged.constant(found, tf.string, 1)
    if rows.shape.rank != 2 or rows.dtype != tf.string:
        raise ValueError(f"{expected} Received: {rows.dtype.name} of shape {rows.shape}.")
    if not isinstance(rows, tf.RaggedTensor):
        rows = tf.RaggedTensor.from_tensor(rows)
    return rows.with_row_splits_dtype(tf.int64)


def as_rows(ids: Tensor) -> tf.RaggedTensor:
    """Convert nested lists, a tensor or one row `(T,)` of ids to ragged int32 `(B, None)`."""
    expected = "Ids must be integers of shape (B, T), dense or ragged, or (T,) for one row."
    try:
        if isinstance(ids, list | tuple) and any(isinstance(row, list | tuple) for row in ids):
            ids = tf.ragged.constant(ids, tf.int32, ragged_rank=1)
        elif not isinstance(ids, tf.RaggedTensor):
            ids = tf.convert_to_tensor(ids)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{expected} Received: {shown(ids)}.") from error
    if ids.shape.rank == 1:
        ids = ids[tf.newaxis]
    if ids.shape.rank != 2 or not ids.dtype.is_integer:
        raise ValueError(f"{expected} Received: {ids.dtype.name} of shape {ids.shape}.")
    if not isinstance(ids, tf.RaggedTensor):
        ids = tf.RaggedTensor.from_tensor(ids)
    return tf.cast(ids, tf.int32).with_row_splits_dtype(tf.int64)


def check_ids(ids: tf.RaggedTensor, vocab_size: int) -> None:
    """Raise a `ValueError` if an id is not in the vocabulary, in eager mode only."""
    if not tf.executing_eagerly():
        return
    outside = ids.flat_values.numpy()
    outside = outside[(outside < 0) | (outside >= vocab_size)]
    if outside.size:
        raise ValueError(
            f"An id must be in 0..{vocab_size - 1}, because this vocabulary has {vocab_size} "
            f"tokens. Received: {outside[0]}."
        )
