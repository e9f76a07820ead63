"""The sublayers of a Transformer block: attention, feed-forward networks, and `AddNorm`.

B batch, T tokens (Q queries, K keys), D hidden width, N heads, H width of a head, D / N by default.
"""

import functools
import math
from collections.abc import Callable
from typing import Unpack

import keras
from keras import ops

from keras_bert_d2l.block_config import Activation, Initializer, LayerNorm, width_of_head
from keras_bert_d2l.checks import check_bool, check_integer
from keras_bert_d2l.config import check_field
from keras_bert_d2l.layers.base import (
    NestedLayer,
    activation_function,
    layer_normalization,
    weights_initializer,
)
from keras_bert_d2l.layers.kernels.attention import (
    flash_attention,
    has_flash_attention,
    joined_mask,
    local_attention,
    plain_attention,
)
from keras_bert_d2l.layers.kernels.disentangled import disentangled_bias
from keras_bert_d2l.layers.kernels.fusion import Dense, Dropout, add_norm, fused, is_fusible
from keras_bert_d2l.layers.positions import RelativePositions
from keras_bert_d2l.types import LayerOptions, Option, Shape, Tensor

OF_THREE_TERMS = 1 / math.sqrt(3)  # scales scores that are sums of three products instead of one


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
        relative_embeddings: Whether there are embeddings of distances, K of `BERTConfig`; 0: no.
        own_relative_keys: As in `BERTConfig`.
        relative_dropout: Dropout rate of the embeddings of distances.
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
        relative_positions: Rotary positions, bias, embeddings of distances and window, which
            `BERTEncoder` passes.

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
        relative_embeddings: int = 0,
        own_relative_keys: bool = False,
        relative_dropout: float = 0.0,
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
        self.W_k = self._projection("W_k", self.width_of_heads, key_act, not own_relative_keys)
        self.W_v = self._projection("W_v", self.width_of_heads, value_act)
        self.W_o = self._projection("W_o", num_hiddens, "linear")
        self.dropout = Dropout(check_field("dropout", dropout), dtype=self.dtype_policy)
        self.W_rel_q = self.W_rel_k = None
        rate = relative_dropout if relative_embeddings else 0.0
        self.relative_dropout = Dropout(rate, dtype=self.dtype_policy)
        if own_relative_keys:
            self.W_rel_q = self._projection("W_rel_q", self.width_of_heads, query_act)
            self.W_rel_k = self._projection("W_rel_k", self.width_of_heads, key_act, False)

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
        bias = relative.bias
        if relative.embeddings is not None:
            q, of_distances = q * OF_THREE_TERMS, (relative.max_distance, relative.queries)
            project = functools.partial(self.project_distances, training=training)
            bias = disentangled_bias(q, k, relative.embeddings, project, *of_distances)
        dropout = self._drop if training and self.dropout.rate > 0 else None
        weights = None
        if not return_attention and relative.attends_in_blocks(k.shape[1], mask):
            heads = local_attention(q, k, v, window=relative.window, mask=mask, dropout=dropout)
        else:
            mask = relative.mask(num_keys, mask)
            is_plain = return_attention or dropout is not None or bias is not None
            if is_plain or not has_flash_attention(ops.dtype(q), self.head_width):
                heads, weights = plain_attention(q, k, v, mask, dropout, bias)
            else:
                heads = flash_attention(q, k, v, mask)
        merged = ops.reshape(heads, (*ops.shape(heads)[:2], self.width_of_heads))  # (B, Q, N * H)
        output = self.W_o(merged)  # (B, Q, D)
        return (output, weights) if return_attention else output

    def project_distances(self, X: Tensor, training: bool | None) -> list[Tensor]:
        """Return what the queries and what the keys are multiplied with, both `(N, R, H)`.

        `X` has embeddings of distances, `(R, D)`.
        """
        X, scale = self.relative_dropout(X, training=training), 1 / math.sqrt(self.head_width)
        tables = [
            (self.W_rel_k or self.W_k)(X) * scale,
            (self.W_rel_q or self.W_q)(X) * (scale * OF_THREE_TERMS),
        ]
        return [ops.transpose(self._split_heads(x[None])[0], (1, 0, 2)) for x in tables]

    def _drop(self, weights: Tensor) -> Tensor:
        return self.dropout(weights, training=True)

    def _projection(self, name: str, width: int, act: Activation, has_bias: bool = True) -> Dense:
        return Dense(
            width,
            activation_function(act),
            use_bias=self.use_bias and has_bias,
            kernel_initializer=weights_initializer(
                "dense", self.initializer, self.initializer_range
            ),
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
        for layer in (self.W_rel_q, self.W_rel_k):
            if layer is not None:
                layer.build(queries_shape)


@keras.saving.register_keras_serializable("keras_bert_d2l")
class PositionWiseFFN(NestedLayer):
    """Position-wise feed-forward network: the same two dense layers at every position.

    Source: d2l.ai, section 11.7.

    Args:
        ffn_num_hiddens: Width of the first layer.
        ffn_num_outputs: Width of the second layer, D.
        activation: Activation of the first layer, as in `BERTConfig`.
        dropout: Dropout rate between the two layers.
        use_bias: Whether the layers use a bias.
        initializer: `"book"` or `"truncated_normal"`, see `BERTConfig`.
        initializer_range: Standard deviation of `"truncated_normal"`.
        **kwargs: `name`, `dtype` and `trainable`, as for every Keras layer.

    Call arguments:
        X: Hidden states, `(B, T, D)`.
        training: Whether to apply dropout.

    Output shape: `(B, T, ffn_num_outputs)`.

    Example:
        >>> import numpy as np
        >>> from keras_bert_d2l import book as d2l
        >>> tuple(d2l.PositionWiseFFN(4, 8)(np.ones((2, 3, 4), "float32")).shape)
        (2, 3, 8)
    """

    def __init__(
        self,
        ffn_num_hiddens: int,
        ffn_num_outputs: int,
        *,
        activation: Activation = "relu",
        dropout: float = 0.0,
        use_bias: bool = True,
        initializer: Initializer = "book",
        initializer_range: float = 0.02,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        check_integer("ffn_num_outputs", ffn_num_outputs, 1)
        self.ffn_num_hiddens = check_field("ffn_num_hiddens", ffn_num_hiddens)
        self.dense1 = Dense(
            ffn_num_hiddens,
            activation=activation_function(activation),
            use_bias=use_bias,
            kernel_initializer=weights_initializer("dense", initializer, initializer_range),
            dtype=self.dtype_policy,
            name="dense1",
        )
        self.dropout = Dropout(check_field("dropout", dropout), dtype=self.dtype_policy)
        self.dense2 = Dense(
            ffn_num_outputs,
            use_bias=use_bias,
            kernel_initializer=weights_initializer("dense", initializer, initializer_range),
            dtype=self.dtype_policy,
            name="dense2",
        )

    def build(self, X_shape: Shape) -> None:
        self.dense1.build(X_shape)
        self.dense2.build((*X_shape[:-1], self.ffn_num_hiddens))

    def call(self, X: Tensor, training: bool | None = None) -> Tensor:
        return self.dense2(self.dropout(self.dense1(X, training=training), training=training))


@keras.saving.register_keras_serializable("keras_bert_d2l")
class GatedFFN(PositionWiseFFN):
    """A `PositionWiseFFN` whose first layer has two halves: a hidden layer and its gate.

    The activation of the first half multiplies the second half.

    Source: Shazeer 2020 (GLU variants), equation 5; Warner et al. 2024 (ModernBERT).
    """

    def __init__(
        self,
        ffn_num_hiddens: int,
        ffn_num_outputs: int,
        *,
        activation: Activation = "gelu",
        **options: Option,
    ) -> None:
        super().__init__(2 * ffn_num_hiddens, ffn_num_outputs, activation="linear", **options)
        self.ffn_num_hiddens = ffn_num_hiddens  # the input of the second layer
        self.activation = activation_function(activation)

    def call(self, X: Tensor, training: bool | None = None) -> Tensor:
        Y = self.dense1(X, training=training)
        gate = fused(gated) if training and is_fusible(Y) else gated
        Y = gate(Y, activation=self.activation)
        return self.dense2(self.dropout(Y, training=training), training=training)


def gated(x: Tensor, *, activation: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the activation of the first half of the last axis, times the second half."""
    first, second = ops.split(x, 2, axis=-1)
    return activation(first) * second


@keras.saving.register_keras_serializable("keras_bert_d2l")
class AddNorm(NestedLayer):
    """Residual connection and layer normalization: `ln(dropout(Y) + X)`.

    With `norm_first`, `before` normalizes the input of the sublayer instead, and the sum is not
    normalized: `dropout(Y) + X` with `Y = sublayer(ln(X))` (Xiong et al. 2020, section 3).

    Source: d2l.ai, section 11.7.

    Args:
        dropout: Dropout rate of `Y`.
        layer_norm_epsilon: Epsilon of the layer normalization.
        layer_norm: `"biased"` or `"unbiased"`, see `BERTConfig`.
        norm_first: Whether to normalize the input of the sublayer instead of the sum.
        bias_free: Whether the normalization has no bias.
        has_norm: Whether there is a normalization. `False` requires `norm_first`.
        **kwargs: `name`, `dtype` and `trainable`, as for every Keras layer.

    Call arguments:
        X: Input of the sublayer, `(B, T, D)`.
        Y: Output of the sublayer, `(B, T, D)`.
        training: Whether to apply dropout.

    Output shape: `(B, T, D)`.
    """

    def __init__(
        self,
        dropout: float,
        layer_norm_epsilon: float = 1e-3,
        *,
        layer_norm: LayerNorm = "biased",
        norm_first: bool = False,
        bias_free: bool = False,
        has_norm: bool = True,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.norm_first = norm_first
        self.dropout = Dropout(check_field("dropout", dropout), dtype=self.dtype_policy)
        options: LayerOptions = {"dtype": self.dtype_policy, "name": "ln"}
        if has_norm:
            self.ln = layer_normalization(layer_norm, layer_norm_epsilon, bias_free, **options)
        else:
            self.ln = keras.layers.Identity(**options)

    def build(self, X_shape: Shape, Y_shape: Shape | None = None) -> None:
        self.ln.build(X_shape)

    def before(self, X: Tensor) -> Tensor:
        """Return the input of the sublayer: `X`, normalized if `norm_first`."""
        return self.ln(X) if self.norm_first else X

    def call(self, X: Tensor, Y: Tensor, training: bool | None = None) -> Tensor:
        if self.norm_first:
            return self.dropout(Y, training=training) + X
        return add_norm(X, Y, dropout=self.dropout, ln=self.ln, training=training)
