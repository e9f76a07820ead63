"""One block of the Transformer encoder: hidden states in, hidden states out.

B batch, T tokens, D hidden width.
"""

import math
from typing import Any

import keras
from keras import ops

from keras_bert_d2l.config import ACTIVATIONS
from keras_bert_d2l.layers.attention import MultiHeadAttention
from keras_bert_d2l.layers.initializers import check_initializer, dense_initializer


def gelu(x: Any) -> Any:
    """The exact Gaussian error linear unit (Hendrycks and Gimpel 2016), x * Phi(x).

    Written with erf: Keras's own uses erfc, which has no ONNX operator.
    """
    half = ops.cast(0.5, x.dtype)
    return half * x * (1 + ops.erf(x * ops.cast(1 / math.sqrt(2), x.dtype)))


def gelu_tanh(x: Any) -> Any:
    """The tanh approximation of the Gaussian error linear unit (google-research/bert)."""
    return ops.gelu(x, approximate=True)


def activation_function(activation: str) -> Any:
    """Returns the function of the configuration's `activation`."""
    functions = {"relu": ops.relu, "gelu": gelu, "gelu_tanh": gelu_tanh}
    if activation not in functions:
        raise ValueError(
            f"`activation` must be one of {ACTIVATIONS}. Received: activation={activation!r}."
        )
    return functions[activation]


@keras.saving.register_keras_serializable("keras_bert_d2l")
class AddNorm(keras.layers.Layer):
    """Residual connection, then layer normalisation: `ln(dropout(Y) + X)` (d2l.ai, section 11.7).

    Args:
        dropout: Rate of the dropout on `Y`.
        layer_norm_epsilon: Added to the variance.

    Call arguments:
        X: What went into the sublayer, `(B, T, D)`.
        Y: What came out of it, `(B, T, D)`.
        training: Whether dropout acts.

    Output shape: `(B, T, D)`.
    """

    def __init__(self, dropout: float, layer_norm_epsilon: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dropout_rate = dropout
        self.layer_norm_epsilon = layer_norm_epsilon
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.ln = keras.layers.LayerNormalization(
            epsilon=layer_norm_epsilon, dtype=self.dtype_policy, name="ln"
        )

    def build(self, X_shape: Any, Y_shape: Any = None) -> None:
        self.ln.build(X_shape)

    def call(self, X: Any, Y: Any, training: bool | None = None) -> Any:
        return self.ln(self.dropout(Y, training=training) + X)

    def compute_output_shape(self, X_shape: Any, Y_shape: Any = None) -> Any:
        return X_shape

    def get_config(self) -> dict[str, Any]:
        config = {"dropout": self.dropout_rate, "layer_norm_epsilon": self.layer_norm_epsilon}
        return {**super().get_config(), **config}


@keras.saving.register_keras_serializable("keras_bert_d2l")
class PositionWiseFFN(keras.layers.Layer):
    """The same two dense layers at every position (d2l.ai, section 11.7).

    Args:
        ffn_num_hiddens: Width of the first layer.
        ffn_num_outputs: Width of the second layer, D.
        activation: Between the two: `"relu"`, `"gelu"` or `"gelu_tanh"`.
        initializer: `"book"` or `"truncated_normal"`, see `BERTConfig`.

    Call arguments:
        X: `(B, T, D)`.

    Output shape: `(B, T, ffn_num_outputs)`.
    """

    def __init__(
        self,
        ffn_num_hiddens: int,
        ffn_num_outputs: int,
        *,
        activation: str = "relu",
        initializer: str = "book",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.ffn_num_hiddens = ffn_num_hiddens
        self.ffn_num_outputs = ffn_num_outputs
        self.activation = activation
        self.initializer = check_initializer(initializer)
        self.dense1 = keras.layers.Dense(
            ffn_num_hiddens,
            activation=activation_function(activation),
            kernel_initializer=dense_initializer(initializer),
            dtype=self.dtype_policy,
            name="dense1",
        )
        self.dense2 = keras.layers.Dense(
            ffn_num_outputs,
            kernel_initializer=dense_initializer(initializer),
            dtype=self.dtype_policy,
            name="dense2",
        )

    def build(self, X_shape: Any) -> None:
        self.dense1.build(X_shape)
        self.dense2.build((*X_shape[:-1], self.ffn_num_hiddens))

    def call(self, X: Any) -> Any:
        return self.dense2(self.dense1(X))

    def compute_output_shape(self, X_shape: Any) -> Any:
        return (*X_shape[:-1], self.ffn_num_outputs)

    def get_config(self) -> dict[str, Any]:
        config = {
            "ffn_num_hiddens": self.ffn_num_hiddens,
            "ffn_num_outputs": self.ffn_num_outputs,
            "activation": self.activation,
            "initializer": self.initializer,
        }
        return {**super().get_config(), **config}


@keras.saving.register_keras_serializable("keras_bert_d2l")
class TransformerEncoderBlock(keras.layers.Layer):
    """Self-attention, then the feed-forward layer, each followed by `AddNorm`.

    Source: d2l.ai, section 11.7; the argument order is that of its PyTorch edition.

    Args:
        num_hiddens: Width of the hidden states, D.
        ffn_num_hiddens: Width of the feed-forward layer.
        num_heads: Number of attention heads, N.
        dropout: Rate of the dropout after both sublayers.
        use_bias: Whether the attention's projections have a bias.
        attention_dropout: Rate of the dropout on the attention weights; `None`: as `dropout`.
        layer_norm_epsilon: Added to the variance in both layer normalisations.
        activation: Of the feed-forward layer: `"relu"`, `"gelu"` or `"gelu_tanh"`.
        initializer: `"book"` or `"truncated_normal"`, see `BERTConfig`.

    Call arguments:
        X: Hidden states, `(B, T, D)`.
        valid_lens: Tokens that count: int `(B,)`, `(B, T)` or `None` for all.
        training: Whether dropout acts.

    Output shape: `(B, T, D)`.
    """

    def __init__(
        self,
        num_hiddens: int,
        ffn_num_hiddens: int,
        num_heads: int,
        dropout: float,
        use_bias: bool = True,
        *,
        attention_dropout: float | None = None,
        layer_norm_epsilon: float = 1e-3,
        activation: str = "relu",
        initializer: str = "book",
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.num_hiddens = num_hiddens
        self.ffn_num_hiddens = ffn_num_hiddens
        self.num_heads = num_heads
        self.dropout_rate = dropout
        self.use_bias = use_bias
        self.attention_dropout = attention_dropout
        self.layer_norm_epsilon = layer_norm_epsilon
        self.activation = activation
        self.initializer = initializer
        policy = self.dtype_policy
        self.attention = MultiHeadAttention(
            num_hiddens,
            num_heads,
            dropout if attention_dropout is None else attention_dropout,
            use_bias,
            initializer=initializer,
            dtype=policy,
            name="attention",
        )
        self.addnorm1 = AddNorm(dropout, layer_norm_epsilon, dtype=policy, name="addnorm1")
        self.ffn = PositionWiseFFN(
            ffn_num_hiddens,
            num_hiddens,
            activation=activation,
            initializer=initializer,
            dtype=policy,
            name="ffn",
        )
        self.addnorm2 = AddNorm(dropout, layer_norm_epsilon, dtype=policy, name="addnorm2")

    def build(self, X_shape: Any, valid_lens_shape: Any = None) -> None:
        self.attention.build(X_shape)
        self.addnorm1.build(X_shape)
        self.ffn.build(X_shape)
        self.addnorm2.build(X_shape)

    def call(self, X: Any, valid_lens: Any = None, training: bool | None = None) -> Any:
        Y = self.addnorm1(
            X, self.attention(X, X, X, valid_lens, training=training), training=training
        )
        return self.addnorm2(Y, self.ffn(Y), training=training)

    def compute_output_shape(self, X_shape: Any, valid_lens_shape: Any = None) -> Any:
        return X_shape

    def get_config(self) -> dict[str, Any]:
        config = {
            "num_hiddens": self.num_hiddens,
            "ffn_num_hiddens": self.ffn_num_hiddens,
            "num_heads": self.num_heads,
            "dropout": self.dropout_rate,
            "use_bias": self.use_bias,
            "attention_dropout": self.attention_dropout,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "activation": self.activation,
            "initializer": self.initializer,
        }
        return {**super().get_config(), **config}
