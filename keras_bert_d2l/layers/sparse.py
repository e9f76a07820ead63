"""Pooling of masked-language-model logits into one sparse vector per text (SPLADE).

B batch, T tokens, D hidden width, V vocabulary.
"""

import dataclasses
from typing import Literal, get_args

import keras
from keras import ops

from keras_bert_d2l.checks import check_choice, check_integer
from keras_bert_d2l.types import Tensor

_Pooling = Literal["max", "sum"]
_Activation = Literal["relu", "log1p_relu"]
_TOKENS_AT_ONCE = 8  # the logits of all tokens, (B, T, V), would need gigabytes


@dataclasses.dataclass(frozen=True)
class SparsePooling:
    """How a `BERTModel` with an MLM head computes sparse vectors: `BERTModel.sparse`.

    A checkpoint of a sparse encoder of sentence-transformers defines it. Any other model has the
    default, that of SPLADE-max, as in sentence-transformers.

    Source: Formal et al. 2021 (SPLADE v2), equations 1 and 6; Geng et al. 2025, for `"log1p_relu"`;
    `SpladePooling` of sentence-transformers.

    Args:
        pooling: `"max"` or `"sum"` over the tokens of a text, including special ones.
        activation: `"relu"`: `log(1 + relu(logits))`; `"log1p_relu"`: the logarithm twice.
        max_len: Maximum number of tokens of a text. `None`: that of the model.
        top_k: Maximum number of nonzero values of a vector. `None`: no limit.

    Raises:
        ValueError: An argument is out of range.

    Example:

    ```python
    import keras_bert_d2l as kb

    model = kb.BERTModel(8, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    model.sparse = kb.SparsePooling(pooling="sum")
    ```
    """

    pooling: _Pooling = "max"
    activation: _Activation = "relu"
    max_len: int | None = None
    top_k: int | None = None

    def __post_init__(self) -> None:
        check_choice("pooling", self.pooling, get_args(_Pooling))
        check_choice("activation", self.activation, get_args(_Activation))
        for name, least in (("max_len", 3), ("top_k", 1)):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), least)

    def __call__(self, mlm: keras.layers.Layer, encoded_X: Tensor, is_token: Tensor) -> Tensor:
        """Return the weight of every token of the vocabulary, float32 `(B, V)`, most of them 0.

        Args:
            mlm: The MLM head.
            encoded_X: Encoded tokens, `(B, T, D)`.
            is_token: Non-padding tokens, bool `(B, T)`.
        """
        num_rows, num_tokens, width = ops.shape(encoded_X)
        step = _TOKENS_AT_ONCE
        X = ops.pad(encoded_X, [[0, 0], [0, step], [0, 0]])
        counted = ops.pad(is_token, [[0, 0], [0, step]])

        def add(number: Tensor, weights: Tensor) -> Tensor:
            first = number * step
            logits = mlm(ops.slice(X, (0, first, 0), (num_rows, step, width)))
            counts = ops.slice(counted, (0, first), (num_rows, step))[:, :, None]
            values = ops.relu(ops.where(counts, ops.cast(logits, "float32"), 0.0))
            if self.pooling == "max":  # before the logarithm, which keeps the order
                return ops.maximum(weights, ops.max(values, axis=1))
            return weights + ops.sum(self._log(values), axis=1)

        zeros = ops.zeros((num_rows, mlm.vocab_size), "float32")
        weights = ops.fori_loop(0, (num_tokens + step - 1) // step, add, zeros)
        return self._log(weights) if self.pooling == "max" else weights

    def _log(self, values: Tensor) -> Tensor:
        values = ops.log1p(values)
        return ops.log1p(values) if self.activation == "log1p_relu" else values
