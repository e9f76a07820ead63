"""The encoder shared by all signatures of an exported model, with checks of its inputs.

B: texts in a batch, T: tokens in a row, D: hidden width.
"""

import numpy as np
import tensorflow as tf

from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.serving.signatures.signature import traced_once
from keras_bert_d2l.text.tokenizer.framing import require

BATCH = (
    tf.TensorSpec((None, None), tf.int32, name="tokens"),
    tf.TensorSpec((None, None), tf.int32, name="segments"),
    tf.TensorSpec((None,), tf.int32, name="valid_lens"),
)
EXAMPLE_BATCH = (np.zeros((1, 2), np.int32), np.zeros((1, 2), np.int32), np.full(1, 2, np.int32))
"""A small batch of token ids for warming up a server."""


class ServedEncoder:
    """The encoder of a model without dropout, traced once for all signatures.

    Args:
        model: The model.

    Call arguments:
        tokens: Token ids with special tokens and padding, int32 `(B, T)`.
        segments: Segment ids, int32 `(B, T)`.
        valid_lens: Number of non-padding tokens per row, int32 `(B,)`.

    Returns: encoded tokens `(B, T, D)`.
    """

    def __init__(self, model: BERTModel | TaskModel) -> None:
        self.config = model.bert_config
        self._encoder = model.encoder
        self._traced = traced_once(self._encode, BATCH)

    def __call__(self, tokens: tf.Tensor, segments: tf.Tensor, valid_lens: tf.Tensor) -> tf.Tensor:
        return self._traced(tokens, segments, valid_lens)

    def check(self, tokens: tf.Tensor) -> list[tf.Operation]:
        """Return assertions for token ids. Without them, a GPU returns zeros for invalid ids."""
        vocab_size, max_len = self.config.vocab_size, self.config.max_len
        are_tokens = (0 <= tokens) & (tokens < vocab_size)
        is_short = tf.shape(tokens)[1] <= max_len
        return [
            *require(is_short, f"`tokens` must have at most {max_len} columns."),
            *require(are_tokens, f"`tokens` must be from 0 to {vocab_size - 1}."),
        ]

    def _encode(self, tokens: tf.Tensor, segments: tf.Tensor, valid_lens: tf.Tensor) -> tf.Tensor:
        return self._encoder(tokens, segments, valid_lens, training=False)


def mean_of(encoded: tf.Tensor, valid_lens: tf.Tensor) -> tf.Tensor:
    """Return the mean of the first `valid_lens` encoded tokens per row, float32 `(B, D)`."""
    is_valid = tf.sequence_mask(valid_lens, tf.shape(encoded)[1], tf.float32)  # (B, T)
    total = tf.einsum("btd,bt->bd", tf.cast(encoded, tf.float32), is_valid)
    return total / tf.cast(valid_lens, tf.float32)[:, None]
