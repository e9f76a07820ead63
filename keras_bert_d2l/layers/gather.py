"""Gathering of the token vectors that a layer needs.

B batch, T tokens, P positions, D hidden width.
"""

import keras
from keras import ops

from keras_bert_d2l.layers.feature_checks import check_positions, is_known
from keras_bert_d2l.ranges import check_range
from keras_bert_d2l.types import Tensor


def gather_positions(X: Tensor, positions: Tensor, name: str) -> Tensor:
    """Return the vectors at the given positions.

    Args:
        X: `(B, T, D)`.
        positions: int `(B, P)`, each in [0, T).
        name: Name of the argument `positions`, for messages.

    Returns: `(B, P, D)`.
    """
    if None not in (num_rows := X.shape[0], positions.shape[0]):
        check_range(f"{name}.shape[0]", positions.shape[0], num_rows, num_rows, "It must match X.")
    if is_known(positions) and is_known(X):
        check_positions(name, positions, X.shape[1])
    positions = ops.cast(positions, "int32")
    if keras.backend.backend() == "tensorflow":  # six times faster than `take_along_axis`
        import tensorflow as tf

        return tf.gather_nd(X, positions[:, :, None], batch_dims=1)
    batch, length, width = ops.shape(X)
    row_starts = ops.arange(batch, dtype="int32")[:, None] * length
    return ops.take(ops.reshape(X, (-1, width)), positions + row_starts, axis=0)
