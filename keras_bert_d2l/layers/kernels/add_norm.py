"""Dropout, residual connection and layer normalization as one function on TensorFlow's CPU."""

from collections.abc import Callable

import keras
from keras import ops

from keras_bert_d2l.layers.kernels.dropout import Dropout, dropped
from keras_bert_d2l.layers.kernels.fusion import fused, is_fusible
from keras_bert_d2l.layers.layer_norm import normalization_of
from keras_bert_d2l.types import Tensor


def add_norm(
    X: Tensor, Y: Tensor, *, dropout: Dropout, ln: keras.layers.Layer, training: bool | None
) -> Tensor:
    """Return `ln(dropout(Y) + X)`; while training, fused where that is faster."""
    if not (training and is_fusible(Y)):
        return ln(dropout(Y, training=training) + X)
    seed = dropout.seed_generator.next() if dropout.rate > 0 else ops.zeros(2, "int64")
    return fused(dropped_added_normalized)(
        *(X, Y, ln.gamma, ln.beta, seed),
        rate=dropout.rate,
        normalization=normalization_of(ln),
        epsilon=ln.epsilon,
    )


def dropped_added_normalized(
    X: Tensor,
    Y: Tensor,
    gamma: Tensor,
    beta: Tensor,
    seed: Tensor,
    *,
    rate: float,
    normalization: Callable[..., Tensor],
    epsilon: float,
) -> Tensor:
    """Return the normalized sum of `X` and of `Y` after dropout, computed in float32."""
    kept = ops.cast(Y, "float32")
    kept = dropped(kept, seed, rate=rate) if rate > 0 else kept
    normal = normalization(kept + ops.cast(X, "float32"), gamma, beta, epsilon=epsilon)
    return ops.cast(normal, X.dtype)
