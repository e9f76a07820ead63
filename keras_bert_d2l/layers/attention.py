"""Attention: queries, keys and values in, weighted values out.

B batch, T tokens (Q of the queries, K of the keys), D hidden width, N heads.
"""

import math
from typing import Any

import keras
from keras import ops

from keras_bert_d2l.layers.initializers import check_initializer, dense_initializer


def attention_mask(valid_lens: Any, num_keys: Any) -> Any:
    """Tells which keys each query may attend to.

    Args:
        valid_lens: int `(B,)`, the number of valid keys of each example, or `(B, Q)`, of each
            query.
        num_keys: Number of keys, K.

    Returns: bool `(B, 1, 1, K)` or `(B, 1, Q, K)`, broadcast over heads (and queries).
    """
    valid_lens = ops.cast(valid_lens, "int32")
    if len(valid_lens.shape) not in (1, 2):
        raise ValueError(
            "`valid_lens` must have the shape (B,), one length per example, or (B, Q), one per "
            f"query. Received: valid_lens.shape={tuple(valid_lens.shape)}."
        )
    if len(valid_lens.shape) == 1:
        valid_lens = valid_lens[:, None]
    return ops.arange(num_keys, dtype="int32") < valid_lens[:, None, :, None]


def masked_softmax(scores: Any, mask: Any = None) -> Any:
    """Softmax over the last axis in which masked entries get no weight.

    Args:
        scores: `(..., K)` in any float dtype.
        mask: bool, broadcastable to `scores`, True where an entry counts. `None`: all count.

    Returns: weights of the shape and dtype of `scores`; exactly 0 where masked, unless a whole
        row is masked.
    """
    if mask is not None:
        # A score this low vanishes in the softmax of every dtype: exp() of it is 0. float16 ends
        # at 65504, so that -1e6, the book's value, would be an infinity there.
        low = -3e4 if keras.backend.standardize_dtype(scores.dtype) == "float16" else -1e6
        scores = scores + ops.where(mask, ops.cast(0.0, scores.dtype), ops.cast(low, scores.dtype))
    return ops.softmax(scores, axis=-1)


@keras.saving.register_keras_serializable("keras_bert_d2l")
class MultiHeadAttention(keras.layers.Layer):
    """Scaled dot-product attention in several heads.

    Source: d2l.ai, section 11.5; Vaswani et al. 2017, section 3.2.2.

    Args:
        num_hiddens: Width of the projections and of the output, D; a multiple of `num_heads`.
        num_heads: Number of heads, N.
        dropout: Rate of the dropout on the attention weights.
        use_bias: Whether the four projections have a bias.
        initializer: `"book"` or `"truncated_normal"`, see `BERTConfig`.

    Call arguments:
        queries: `(B, Q, D)`.
        keys: `(B, K, D)`.
        values: `(B, K, D)`.
        valid_lens: Keys that count: int `(B,)`, `(B, Q)` or `None` for all.
        training: Whether dropout acts.

    Output shape: `(B, Q, D)`.
    """

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float,
        use_bias: bool = True,
        *,
        initializer: str = "book",
        **kwargs: Any,
    ) -> None:
        # Lengths must not pass through a half-precision float: 257 would become 256.
        super().__init__(autocast=False, **kwargs)
        if num_hiddens % num_heads:
            raise ValueError(
                "`num_hiddens` must be a multiple of `num_heads`, so that each head gets the same "
                f"width. Received: num_hiddens={num_hiddens}, num_heads={num_heads}."
            )
        self.num_hiddens = num_hiddens
        self.num_heads = num_heads
        self.dropout_rate = dropout
        self.use_bias = use_bias
        self.initializer = check_initializer(initializer)
        self.W_q = self._projection("W_q")
        self.W_k = self._projection("W_k")
        self.W_v = self._projection("W_v")
        self.W_o = self._projection("W_o")
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def _projection(self, name: str) -> keras.layers.Dense:
        return keras.layers.Dense(
            self.num_hiddens,
            use_bias=self.use_bias,
            kernel_initializer=dense_initializer(self.initializer),
            dtype=self.dtype_policy,
            name=name,
        )

    def build(
        self,
        queries_shape: Any,
        keys_shape: Any = None,
        values_shape: Any = None,
        valid_lens_shape: Any = None,
    ) -> None:
        self.W_q.build(queries_shape)
        self.W_k.build(keys_shape or queries_shape)
        self.W_v.build(values_shape or keys_shape or queries_shape)
        self.W_o.build((*queries_shape[:-1], self.num_hiddens))

    def _split_heads(self, x: Any) -> Any:
        batch, length = ops.shape(x)[:2]
        x = ops.reshape(x, (batch, length, self.num_heads, self.num_hiddens // self.num_heads))
        return ops.transpose(x, (0, 2, 1, 3))  # (B, N, T, D / N)

    def call(
        self,
        queries: Any,
        keys: Any,
        values: Any,
        valid_lens: Any = None,
        training: bool | None = None,
    ) -> Any:
        scale = 1.0 / math.sqrt(self.num_hiddens // self.num_heads)
        # Scaling the queries costs D numbers a token, scaling the scores N * K.
        q = self._split_heads(self.W_q(queries) * scale)
        k = self._split_heads(self.W_k(keys))
        v = self._split_heads(self.W_v(values))
        mask = None if valid_lens is None else attention_mask(valid_lens, ops.shape(k)[2])
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2)))  # (B, N, Q, K)
        weights = self.dropout(masked_softmax(scores, mask), training=training)
        heads = ops.transpose(ops.matmul(weights, v), (0, 2, 1, 3))  # (B, Q, N, D / N)
        batch, length = ops.shape(heads)[:2]
        return self.W_o(ops.reshape(heads, (batch, length, self.num_hiddens)))

    def compute_output_shape(
        self,
        queries_shape: Any,
        keys_shape: Any = None,
        values_shape: Any = None,
        valid_lens_shape: Any = None,
    ) -> Any:
        return (*queries_shape[:-1], self.num_hiddens)

    def get_config(self) -> dict[str, Any]:
        config = {
            "num_hiddens": self.num_hiddens,
            "num_heads": self.num_heads,
            "dropout": self.dropout_rate,
            "use_bias": self.use_bias,
            "initializer": self.initializer,
        }
        return {**super().get_config(), **config}
