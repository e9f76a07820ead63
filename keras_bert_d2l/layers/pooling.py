"""Encoded tokens in, one vector for each text out.

B batch, T tokens, D hidden width.
"""

from typing import Any

import keras
from keras import ops

POOLINGS = ("cls", "mean", "max")
_LOWEST = -3e38  # in float32 and bfloat16; float16 makes minus infinity of it


@keras.saving.register_keras_serializable("keras_bert_d2l")
class Pooling(keras.layers.Layer):
    """Makes one vector of the tokens of a text; padding has no part in it.

    Source: Reimers and Gurevych 2019 (Sentence-BERT), section 3, whose poolings these are.

    Args:
        pooling: `"cls"`, the first token; `"mean"` or `"max"`, over all tokens, special ones too.
        normalize: Whether the vector is divided by its length.

    Call arguments:
        X: Encoded tokens, `(B, T, D)`.
        mask: Tokens that are not padding, bool `(B, T)`; `None`: all.

    Output shape: `(B, D)`.

    Raises:
        ValueError: There is no such pooling.
    """

    def __init__(self, pooling: str = "mean", *, normalize: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if pooling not in POOLINGS:
            raise ValueError(f"`pooling` must be one of {POOLINGS}. Received: {pooling!r}.")
        self.pooling = pooling
        self.normalize = normalize

    def call(self, X: Any, mask: Any = None) -> Any:
        X = ops.cast(X, self.compute_dtype)
        if mask is None:
            mask = ops.ones(ops.shape(X)[:2], "bool")
        if self.pooling == "cls":
            vectors = X[:, 0]
        elif self.pooling == "mean":
            weights = ops.cast(mask, X.dtype)[:, :, None]
            # A text without a token has the vector 0.
            vectors = ops.divide_no_nan(ops.sum(X * weights, axis=1), ops.sum(weights, axis=1))
        else:
            # `initial`: of a batch of no texts, too, there is a largest number.
            vectors = ops.max(
                ops.where(mask[:, :, None], X, ops.full_like(X, _LOWEST)), axis=1, initial=_LOWEST
            )
        if self.normalize:
            length = ops.sqrt(ops.sum(ops.square(vectors), axis=-1, keepdims=True))
            vectors = vectors / ops.maximum(length, 1e-12)
        return vectors

    def compute_output_shape(self, X_shape: Any, mask_shape: Any = None) -> Any:
        return (X_shape[0], X_shape[-1])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "pooling": self.pooling, "normalize": self.normalize}
