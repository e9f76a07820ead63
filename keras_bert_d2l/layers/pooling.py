"""Pooling of token vectors.

B batch, T tokens, D hidden width.
"""

from typing import Literal, TypeAlias, Unpack, get_args

import keras
from keras import ops

from keras_bert_d2l.checks import check_choice
from keras_bert_d2l.layers.inputs import gather_positions
from keras_bert_d2l.types import LayerOptions, Shape, Tensor

PoolingKind: TypeAlias = Literal["cls", "mean", "max"]
TextPooling: TypeAlias = Literal["cls", "mean"]
POOLINGS: tuple[PoolingKind, ...] = get_args(PoolingKind)
_LOWEST = -3e38  # finite in float32 and bfloat16, minus infinity in float16


@keras.saving.register_keras_serializable("keras_bert_d2l")
class Pooling(keras.layers.Layer):
    """Pooling of the token vectors of each text into one vector, ignoring padding.

    Source: Reimers and Gurevych 2019 (Sentence-BERT), section 3.

    Args:
        pooling: `"cls"`, the first token that is not padding; `"mean"` or `"max"`, over all tokens
            including special ones.
        normalize: Whether to scale the vectors to length 1.
        **kwargs: `name`, `dtype` and `trainable`, as for every Keras layer.

    Call arguments:
        X: Encoded tokens, `(B, T, D)`.
        is_token: Non-padding tokens, bool `(B, T)`. `None`: all tokens.

    Output shape: `(B, D)`.

    Raises:
        ValueError: `pooling` is unknown.
    """

    def __init__(
        self,
        pooling: PoolingKind = "mean",
        *,
        normalize: bool = True,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.pooling = check_choice("pooling", pooling, POOLINGS)
        self.normalize = normalize

    def build(self, X_shape: Shape, is_token_shape: Shape | None = None) -> None:
        """Create no weights. Keras records the shapes, and `summary` reads them."""

    # Not named `mask`, which Keras would fill in by itself if it is `None`.
    def call(self, X: Tensor, is_token: Tensor | None = None) -> Tensor:
        X = ops.cast(X, self.compute_dtype)
        is_token = ops.ones(ops.shape(X)[:2], "bool") if is_token is None else is_token
        if self.pooling == "cls":  # at position 0, unless rows are padded on the left
            first = ops.argmax(ops.cast(is_token, "int32"), axis=1)
            vectors = gather_positions(X, first[:, None], "is_token")[:, 0]
        else:
            vectors = pooled(X, is_token, self.pooling)
        return unit(vectors) if self.normalize else vectors

    def compute_output_shape(self, X_shape: Shape, is_token_shape: Shape | None = None) -> Shape:
        return (X_shape[0], X_shape[-1])


def pooled(X: Tensor, is_counted: Tensor, kind: str) -> Tensor:
    """Return the "mean" or "max" `(B, D)` of the vectors `(B, T, D)` that count: bool `(B, T)`."""
    counted = is_counted[:, :, None]
    if kind == "max":
        X = ops.where(counted, X, ops.full_like(X, _LOWEST))
        return ops.max(X, axis=1, initial=_LOWEST)  # `initial` allows an empty batch
    weights = ops.cast(counted, X.dtype)
    # A text without tokens gets the zero vector.
    return ops.divide_no_nan(ops.sum(X * weights, axis=1), ops.sum(weights, axis=1))


def unit(vectors: Tensor) -> Tensor:
    """Scale vectors, on the last axis, to length 1."""
    length = ops.sqrt(ops.sum(ops.square(vectors), axis=-1, keepdims=True))
    return vectors / ops.maximum(length, 1e-12)
