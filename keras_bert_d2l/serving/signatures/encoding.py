"""Token ids in, encoded tokens and vectors out: what all served models have in common.

B texts in a batch, T tokens, D hidden width.
"""

import numpy as np
import tensorflow as tf

from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.text.tokenizer.framing import require

BATCH = (
    tf.TensorSpec((None, None), tf.int32, name="tokens"),
    tf.TensorSpec((None, None), tf.int32, name="segments"),
    tf.TensorSpec((None,), tf.int32, name="valid_lens"),
)


class Encoding:
    """The encoder of a model, without dropout, as one function that all signatures share.

    Args:
        model: The model.

    Call arguments:
        tokens: Token ids with special tokens and padding, int32 `(B, T)`.
        segments: Segment ids, int32 `(B, T)`.
        valid_lens: Tokens of each row that are not padding, int32 `(B,)`.

    Returns: the encoded tokens `(B, T, D)`.
    """

    def __init__(self, model: BERTModel | TaskModel) -> None:
        self.config = model.bert_config
        self._encoder = model.encoder
        # A function of its own is traced and stored once for all signatures.
        self._encode = tf.function(self._encoded, input_signature=BATCH, autograph=False)

    def __call__(self, tokens: tf.Tensor, segments: tf.Tensor, valid_lens: tf.Tensor) -> tf.Tensor:
        return self._encode(tokens, segments, valid_lens)

    def check(self, tokens: tf.Tensor) -> list[tf.Operation]:
        """Fails on what a GPU would answer without a word: it reads zeros where nothing is."""
        vocab_size, max_len = self.config.vocab_size, self.config.max_len
        are_tokens = (0 <= tokens) & (tokens < vocab_size)
        is_short = tf.shape(tokens)[1] <= max_len
        return [
            *require(is_short, f"`tokens` must be at most {max_len} wide."),
            *require(are_tokens, f"`tokens` must be from 0 to {vocab_size - 1}."),
        ]

    def mean(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the mean of each row's valid tokens, float32 `(B, D)`."""
        return mean_of(self(**batch), batch["valid_lens"])

    def _encoded(self, tokens: tf.Tensor, segments: tf.Tensor, valid_lens: tf.Tensor) -> tf.Tensor:
        return self._encoder(tokens, segments, valid_lens, training=False)


def mean_of(encoded: tf.Tensor, valid_lens: tf.Tensor) -> tf.Tensor:
    """Returns the mean of the first `valid_lens` encoded tokens of each row, float32 `(B, D)`."""
    is_valid = tf.sequence_mask(valid_lens, tf.shape(encoded)[1], tf.float32)  # (B, T)
    total = tf.einsum("btd,bt->bd", tf.cast(encoded, tf.float32), is_valid)
    return total / tf.cast(valid_lens, tf.float32)[:, None]


def example_batch() -> tuple[np.ndarray, ...]:
    """Returns a small batch of token ids, for the warm-up of a server."""
    ids, lengths = np.zeros((1, 2), np.int32), np.full(1, 2, np.int32)
    return ids, ids, lengths
