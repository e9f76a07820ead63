"""Multi-head attention layer. `kernels/attention.py` computes the attention itself.

B batch, T tokens (Q queries, K keys), D hidden width, N heads, H width of a head, D / N by default.
"""

from typing import Unpack

import keras
from keras import ops

from keras_bert_d2l.block_config import Activation, Initializer, width_of_head
from keras_bert_d2l.checks import check_bool
from keras_bert_d2l.config import check_field
from keras_bert_d2l.layers.kernels.attention import (
    flash_attention,
    has_flash_attention,
    plain_attention,
)
from keras_bert_d2l.layers.kernels.dense import Dense
from keras_bert_d2l.layers.kernels.fusion import Dropout
from keras_bert_d2l.layers.kernels.local_attention import local_attention
from keras_bert_d2l.layers.masks import joined_mask
from keras_bert_d2l.layers.nested_layer import NestedLayer
from keras_bert_d2l.layers.positions import RelativePositions
from keras_bert_d2l.layers.variants import activation_function, dense_initializer
from keras_bert_d2l.types import LayerOptions, Shape, Tensor


@keras.saving.register_keras_serializable("keras_bert_d2l")
class MultiHeadAttention(NestedLayer):
    """Multi-head scaled dot-product attention.

    Source: d2l.ai, section 11.5; Vaswani et al. 2017, section 3.2.2.

    Args:
        num_hiddens: Width of the output, D; a multiple of `num_heads`, unless `size_per_head` is
            given.
        num_heads: Number of heads, N.
        dropout: Dropout rate of the attention weights.
        use_bias: Whether the four projections use a bias.
        initializer: `"book"` or `"truncated_normal"`, see `BERTConfig`.
        initializer_range: Standard deviation of `"truncated_normal"`.
        size_per_head: Width of each head, H. `None`: D / N.
        query_act: Activation of the queries, as for `activation` of `BERTConfig`.
        key_act: The same for the keys.
        value_act: The same for the values.
        **kwargs: `name`, `dtype` and `trainable`, as for every Keras layer.

    Call arguments:
        queries: `(B, Q, D)`.
        keys: `(B, K, D)`.
        values: `(B, K, D)`.
        valid_lens: Number of valid keys, int `(B,)` or `(B, Q)`. `None`: all keys are valid.
        training: Whether to apply dropout.
        attention_mask: Keys to attend to, bool or numeric, `(B, K)` or `(B, Q, K)`. A key must be
            allowed by both `valid_lens` and `attention_mask`.
        return_attention: Whether to return the attention weights as well.
        relative_positions: Rotary positions, bias and window, which `BERTEncoder` passes.

    Returns: The output `(B, Q, D)`. With `return_attention`, a tuple of the output and the
        attention weights `(B, N, Q, K)`.

    Raises:
        ValueError: `num_hiddens` is not a multiple of `num_heads`, or an option is out of range.

    Example:

    ```python
    import numpy as np
    import keras_bert_d2l as kb

    attention = kb.MultiHeadAttention(num_hiddens=100, num_heads=5, dropout=0.5)
    queries, keys = np.ones((2, 4, 100)), np.ones((2, 6, 100))
    output = attention(queries, keys, keys, valid_lens=np.array([3, 2]))
    assert output.shape == (2, 4, 100)
    ```
    """

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float,
        use_bias: bool = True,
        *,
        initializer: Initializer = "book",
        initializer_range: float = 0.02,
        size_per_head: int | None = None,
        query_act: Activation = "linear",
        key_act: Activation = "linear",
        value_act: Activation = "linear",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        # Disable autocast: in bfloat16, a length of 257 would become 256.
        super().__init__(autocast=False, **kwargs)
        for name, act in ("query_act", query_act), ("key_act", key_act), ("value_act", value_act):
            check_field(name, act)
        self.head_width = width_of_head(num_hiddens, num_heads, size_per_head)
        self.width_of_heads = num_heads * self.head_width  # N * H
        self.num_hiddens = num_hiddens
        self.num_heads = num_heads
        self.use_bias = check_bool("use_bias", use_bias)
        self.initializer, self.initializer_range = initializer, initializer_range
        self.W_q = self._projection("W_q", self.width_of_heads, query_act)
        self.W_k = self._projection("W_k", self.width_of_heads, key_act)
        self.W_v = self._projection("W_v", self.width_of_heads, value_act)
        self.W_o = self._projection("W_o", num_hiddens, "linear")
        self.dropout = Dropout(check_field("dropout", dropout), dtype=self.dtype_policy)

    def call(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        valid_lens: Tensor | None = None,
        training: bool | None = None,
        attention_mask: Tensor | None = None,
        return_attention: bool = False,
        relative_positions: RelativePositions | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        num_keys = ops.shape(keys)[1]
        mask = joined_mask(num_keys, valid_lens, attention_mask)  # (B, 1 or Q, K)
        q, k, v = self.W_q(queries), self.W_k(keys), self.W_v(values)  # (B, Q or K, N * H)
        q, k, v = map(self._split_heads, (q, k, v))  # (B, Q or K, N, H)
        relative = relative_positions or RelativePositions()
        q, k = relative.rotated(q, k)
        dropout = self._drop if training and self.dropout.rate > 0 else None
        weights = None
        if not return_attention and relative.attends_in_blocks(k.shape[1], mask):
            heads = local_attention(q, k, v, window=relative.window, mask=mask, dropout=dropout)
        else:
            mask = relative.mask(num_keys, mask)
            is_plain = return_attention or dropout is not None or relative.bias is not None
            if is_plain or not has_flash_attention(ops.dtype(q), self.head_width):
                heads, weights = plain_attention(q, k, v, mask, dropout, relative.bias)
            else:
                heads = flash_attention(q, k, v, mask)
        merged = ops.reshape(heads, (*ops.shape(heads)[:2], self.width_of_heads))  # (B, Q, N * H)
        output = self.W_o(merged)  # (B, Q, D)
        return (output, weights) if return_attention else output

    def _drop(self, weights: Tensor) -> Tensor:
        return self.dropout(weights, training=True)

    def _projection(self, name: str, width: int, activation: Activation) -> keras.layers.Dense:
        return Dense(
            width,
            activation_function(activation),
            use_bias=self.use_bias,
            kernel_initializer=dense_initializer(self.initializer, self.initializer_range),
            dtype=self.dtype_policy,
            name=name,
        )

    def _split_heads(self, x: Tensor) -> Tensor:
        batch, length = ops.shape(x)[:2]
        return ops.reshape(x, (batch, length, self.num_heads, self.head_width))  # (B, T, N, H)

    def build(
        self,
        queries_shape: Shape,
        keys_shape: Shape | None = None,
        values_shape: Shape | None = None,
        valid_lens_shape: Shape | None = None,
    ) -> None:
        self.W_q.build(queries_shape)
        self.W_k.build(keys_shape or queries_shape)
        self.W_v.build(values_shape or keys_shape or queries_shape)
        self.W_o.build((*queries_shape[:-1], self.width_of_heads))
