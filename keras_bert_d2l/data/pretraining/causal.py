"""Causal language modeling: predict every token from the tokens before it.

B: batch size, T: tokens per row.
"""

from collections.abc import Sequence

import tensorflow as tf

from keras_bert_d2l.data.pretraining.masking import MaskedRows


def next_tokens(
    tokens: tf.Tensor,
    valid_lens: tf.Tensor,
    example_ids: tf.Tensor | None,
    not_predicted: Sequence[int],
) -> MaskedRows:
    """Predict the next token at every position but the last, so P = T - 1.

    Args:
        tokens: int32 `(B, T)`.
        valid_lens: int32 `(B,)`, the number of tokens before the padding.
        example_ids: int32 `(B, T)`, the examples of packed rows. The first token of an example is
            not predicted. `None`: one example per row.
        not_predicted: Ids of the tokens that are not predicted, such as `[SEP]`.

    Returns:
        The batch; its tokens are not corrupted.
    """
    labels = tokens[:, 1:]  # (B, T - 1)
    positions = tf.zeros_like(labels) + tf.range(tf.shape(labels)[1])
    is_predicted = positions + 1 < valid_lens[:, None]
    is_predicted &= tf.reduce_all(labels[..., None] != list(not_predicted), axis=-1)
    if example_ids is not None:
        is_predicted &= example_ids[:, 1:] == example_ids[:, :-1]
    return MaskedRows(
        tokens=tokens,
        positions=positions,
        labels=tf.where(is_predicted, labels, 0),
        weights=tf.cast(is_predicted, tf.float32),
    )


def causal_mask(tokens: tf.Tensor) -> tf.Tensor:
    """Return the mask that limits attention to the token itself and those before it.

    Args:
        tokens: `(B, T)`.

    Returns: uint8 `(B, T, T)`, because `MirroredStrategy` cannot divide bool tensors.
    """
    places = tf.range(tf.shape(tokens)[1])
    is_before = tf.cast(places[:, None] >= places, tf.uint8)  # (T, T)
    mask = tf.tile(is_before[None], (tf.shape(tokens)[0], 1, 1))
    return tf.ensure_shape(mask, (*tokens.shape, tokens.shape[1]))
