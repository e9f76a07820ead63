"""Attention: queries, keys and values in, weighted values out.

B batch, T tokens (Q of the queries, K of the keys), D hidden width, N heads.
"""

import math
from typing import Any

import keras
from keras import ops

from keras_bert_d2l.layers.initializers import dense_initializer


def valid_lens_mask(valid_lens: Any, num_keys: Any) -> Any:
    """Tells which keys come before the valid length.

    Args:
        valid_lens: int `(B,)`, the number of valid keys of each example, or `(B, Q)`, of each
            query.
        num_keys: Number of keys, K.

    Returns: bool `(B, 1, K)` or `(B, Q, K)`.
    """
    valid_lens = ops.cast(valid_lens, "int32")
    if len(valid_lens.shape) not in (1, 2):
        raise ValueError(
            "`valid_lens` must have the shape (B,), one length per example, or (B, Q), one per "
            f"query. Received: valid_lens.shape={tuple(valid_lens.shape)}."
        )
    if len(valid_lens.shape) == 1:
        valid_lens = valid_lens[:, None]
    return ops.arange(num_keys, dtype="int32") < valid_lens[:, :, None]


def block_diagonal_mask(example_ids: Any) -> Any:
    """Tells which tokens of a packed row belong to the same example.

    Args:
        example_ids: int `(B, T)`: the number of each token's example, from 1; 0 for padding.

    Returns: bool `(B, T, T)`.
    """
    example_ids = ops.cast(example_ids, "int32")
    same = example_ids[:, :, None] == example_ids[:, None, :]
    return ops.logical_and(same, (example_ids > 0)[:, None, :])


def joint_mask(*masks: Any) -> Any:
    """Joins masks: a query attends to a key where all of them let it.

    Args:
        *masks: Each `(B, K)`, `(B, 1, K)` or `(B, Q, K)`, bool or numbers (0: hidden), or `None`.

    Returns: bool `(B, 1, K)` or `(B, Q, K)`; `None` where all masks are.

    Raises:
        ValueError: A mask has another rank.
    """
    joint = None
    for mask in masks:
        if mask is None:
            continue
        if len(mask.shape) not in (2, 3):
            raise ValueError(
                "`attention_mask` must have the shape (B, T), one entry per key, or (B, T, T), "
                f"one per query and key. Received: attention_mask.shape={tuple(mask.shape)}."
            )
        mask = ops.cast(mask, "bool")
        mask = mask[:, None, :] if len(mask.shape) == 2 else mask
        joint = mask if joint is None else ops.logical_and(joint, mask)
    return joint


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
        attention_mask: Keys that count, as any pattern: bool or numbers `(B, K)` or `(B, Q, K)`;
            with `valid_lens` a key must count in both.
        return_attention: Whether the attention weights are returned too.

    Output shape: `(B, Q, D)`; with `return_attention` a tuple of it and the weights after the
        softmax, `(B, N, Q, K)`.
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
        self.initializer = initializer
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
        attention_mask: Any = None,
        return_attention: bool = False,
    ) -> Any:
        scale = 1.0 / math.sqrt(self.num_hiddens // self.num_heads)
        # Scaling the queries costs D numbers a token, scaling the scores N * K.
        q = self._split_heads(self.W_q(queries) * scale)
        k = self._split_heads(self.W_k(keys))
        v = self._split_heads(self.W_v(values))
        if valid_lens is not None:
            attention_mask = joint_mask(
                valid_lens_mask(valid_lens, ops.shape(k)[2]), attention_mask
            )
        else:
            attention_mask = joint_mask(attention_mask)
        mask = None if attention_mask is None else attention_mask[:, None]  # over the heads
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2)))  # (B, N, Q, K)
        weights = masked_softmax(scores, mask)
        heads = ops.matmul(self.dropout(weights, training=training), v)
        heads = ops.transpose(heads, (0, 2, 1, 3))  # (B, Q, N, D / N)
        batch, length = ops.shape(heads)[:2]
        output = self.W_o(ops.reshape(heads, (batch, length, self.num_hiddens)))
        return (output, weights) if return_attention else output

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        # By tracing `call`: the shape alone, below, does not know what else is asked for.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

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
