"""Position-wise feed-forward networks: BERT's, and the gated one of some relatives.

B batch, T tokens, D hidden width.
"""

from collections.abc import Callable
from typing import Unpack

import keras
from keras import ops

from keras_bert_d2l.block_config import Activation, Initializer
from keras_bert_d2l.checks import check_integer
from keras_bert_d2l.config import check_field
from keras_bert_d2l.layers.kernels.dense import Dense
from keras_bert_d2l.layers.kernels.fusion import Dropout, fused, is_fusible
from keras_bert_d2l.layers.nested_layer import NestedLayer
from keras_bert_d2l.layers.variants import activation_function, dense_initializer
from keras_bert_d2l.types import LayerOptions, Option, Shape, Tensor


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
            kernel_initializer=dense_initializer(initializer, initializer_range),
            dtype=self.dtype_policy,
            name="dense1",
        )
        self.dropout = Dropout(check_field("dropout", dropout), dtype=self.dtype_policy)
        self.dense2 = Dense(
            ffn_num_outputs,
            use_bias=use_bias,
            kernel_initializer=dense_initializer(initializer, initializer_range),
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
