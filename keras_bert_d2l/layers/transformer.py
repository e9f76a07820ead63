"""One block of the Transformer encoder: hidden states in, hidden states out.

B batch, T tokens, D hidden width.
"""

import math
from typing import Any

import keras
from keras import ops

from keras_bert_d2l.config import check_choice
from keras_bert_d2l.layers.attention import MultiHeadAttention
from keras_bert_d2l.layers.initializers import dense_initializer
from keras_bert_d2l.layers.layer_norm import layer_normalization


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
    return functions[check_choice("activation", activation)]


@keras.saving.register_keras_serializable("keras_bert_d2l")
class AddNorm(keras.layers.Layer):
    """Residual connection and layer normalisation: `ln(dropout(Y) + X)` (d2l.ai, section 11.7).

    With `norm_first` the sublayer's input is normalised instead, by `before`, and the sum is left
    as it is: `dropout(Y) + X` with `Y = sublayer(ln(X))` (Xiong et al. 2020, section 3).

    Args:
        dropout: Rate of the dropout on `Y`.
        layer_norm_epsilon: Of the normalisation.
        layer_norm: `"biased"` or `"unbiased"`, see `BERTConfig`.
        norm_first: Whether the sublayer's input is normalised, and not the sum.

    Call arguments:
        X: What went into the sublayer, `(B, T, D)`.
        Y: What came out of it, `(B, T, D)`.
        training: Whether dropout acts.

    Output shape: `(B, T, D)`.
    """

    def __init__(
        self,
        dropout: float,
        layer_norm_epsilon: float = 1e-3,
        *,
        layer_norm: str = "biased",
        norm_first: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.dropout_rate = dropout
        self.layer_norm_epsilon = layer_norm_epsilon
        self.layer_norm = layer_norm
        self.norm_first = norm_first
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.ln = layer_normalization(
            layer_norm, layer_norm_epsilon, dtype=self.dtype_policy, name="ln"
        )

    def build(self, X_shape: Any, Y_shape: Any = None) -> None:
        self.ln.build(X_shape)

    def before(self, X: Any) -> Any:
        """Returns what the sublayer gets: `X`, normalised with `norm_first`."""
        return self.ln(X) if self.norm_first else X

    def call(self, X: Any, Y: Any, training: bool | None = None) -> Any:
        total = self.dropout(Y, training=training) + X
        return total if self.norm_first else self.ln(total)

    def compute_output_shape(self, X_shape: Any, Y_shape: Any = None) -> Any:
        return X_shape

    def get_config(self) -> dict[str, Any]:
        config = {
            "dropout": self.dropout_rate,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "layer_norm": self.layer_norm,
            "norm_first": self.norm_first,
        }
        return {**super().get_config(), **config}


@keras.saving.register_keras_serializable("keras_bert_d2l")
class PositionWiseFFN(keras.layers.Layer):
    """The same two dense layers at every position (d2l.ai, section 11.7).

    Args:
        ffn_num_hiddens: Width of the first layer.
        ffn_num_outputs: Width of the second layer, D.
        activation: Between the two: `"relu"`, `"gelu"` or `"gelu_tanh"`.
        dropout: Rate of the dropout between the two.
        initializer: `"book"` or `"truncated_normal"`, see `BERTConfig`.

    Call arguments:
        X: `(B, T, D)`.
        training: Whether dropout acts.

    Output shape: `(B, T, ffn_num_outputs)`.
    """

    def __init__(
        self,
        ffn_num_hiddens: int,
        ffn_num_outputs: int,
        *,
        activation: str = "relu",
        dropout: float = 0.0,
        initializer: str = "book",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.ffn_num_hiddens = ffn_num_hiddens
        self.ffn_num_outputs = ffn_num_outputs
        self.activation = activation
        self.dropout_rate = dropout
        self.initializer = initializer
        self.dense1 = keras.layers.Dense(
            ffn_num_hiddens,
            activation=activation_function(activation),
            kernel_initializer=dense_initializer(initializer),
            dtype=self.dtype_policy,
            name="dense1",
        )
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.dense2 = keras.layers.Dense(
            ffn_num_outputs,
            kernel_initializer=dense_initializer(initializer),
            dtype=self.dtype_policy,
            name="dense2",
        )

    def build(self, X_shape: Any) -> None:
        self.dense1.build(X_shape)
        self.dense2.build((*X_shape[:-1], self.ffn_num_hiddens))

    def call(self, X: Any, training: bool | None = None) -> Any:
        return self.dense2(self.dropout(self.dense1(X), training=training))

    def compute_output_shape(self, X_shape: Any) -> Any:
        return (*X_shape[:-1], self.ffn_num_outputs)

    def get_config(self) -> dict[str, Any]:
        config = {
            "ffn_num_hiddens": self.ffn_num_hiddens,
            "ffn_num_outputs": self.ffn_num_outputs,
            "activation": self.activation,
            "dropout": self.dropout_rate,
            "initializer": self.initializer,
        }
        return {**super().get_config(), **config}


@keras.saving.register_keras_serializable("keras_bert_d2l")
class TransformerEncoderBlock(keras.layers.Layer):
    """Self-attention, then the feed-forward layer, each with an `AddNorm`.

    Source: d2l.ai, section 11.7; the argument order is that of its PyTorch edition.

    Args:
        num_hiddens: Width of the hidden states, D.
        ffn_num_hiddens: Width of the feed-forward layer.
        num_heads: Number of attention heads, N.
        dropout: Rate of the dropout after both sublayers.
        use_bias: Whether the attention's projections have a bias.
        attention_dropout: Rate of the dropout on the attention weights; `None`: as `dropout`.
        ffn_dropout: Rate of the dropout inside the feed-forward layer.
        block_dropout: Rate of the dropout at the end of the block.
        norm_first: Whether each sublayer normalises its input, and not its sum with the output.
        layer_norm_epsilon: Of both layer normalisations.
        layer_norm: `"biased"` or `"unbiased"`.
        activation: Of the feed-forward layer: `"relu"`, `"gelu"` or `"gelu_tanh"`.
        initializer: `"book"` or `"truncated_normal"`; as the others, see `BERTConfig`.

    Call arguments:
        X: Hidden states, `(B, T, D)`.
        valid_lens: Tokens that count: int `(B,)`, `(B, T)` or `None` for all.
        training: Whether dropout acts.
        attention_mask: Tokens that count, `(B, T)` or `(B, T, T)`, see `MultiHeadAttention`.
        return_attention: Whether the attention weights are returned too.

    Output shape: `(B, T, D)`; with `return_attention` a tuple of it and `(B, N, T, T)`.
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
        ffn_dropout: float = 0.0,
        block_dropout: float = 0.0,
        norm_first: bool = False,
        layer_norm_epsilon: float = 1e-3,
        layer_norm: str = "biased",
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
        self.ffn_dropout = ffn_dropout
        self.block_dropout_rate = block_dropout
        self.norm_first = norm_first
        self.layer_norm_epsilon = layer_norm_epsilon
        self.layer_norm = layer_norm
        self.activation = activation
        self.initializer = initializer
        self.attention = MultiHeadAttention(
            num_hiddens,
            num_heads,
            dropout if attention_dropout is None else attention_dropout,
            use_bias,
            initializer=initializer,
            dtype=self.dtype_policy,
            name="attention",
        )
        self.addnorm1 = self._addnorm("addnorm1")
        self.ffn = PositionWiseFFN(
            ffn_num_hiddens,
            num_hiddens,
            activation=activation,
            dropout=ffn_dropout,
            initializer=initializer,
            dtype=self.dtype_policy,
            name="ffn",
        )
        self.addnorm2 = self._addnorm("addnorm2")
        self.block_dropout = keras.layers.Dropout(block_dropout, dtype=self.dtype_policy)

    def _addnorm(self, name: str) -> AddNorm:
        return AddNorm(
            self.dropout_rate,
            self.layer_norm_epsilon,
            layer_norm=self.layer_norm,
            norm_first=self.norm_first,
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, X_shape: Any, valid_lens_shape: Any = None) -> None:
        self.attention.build(X_shape)
        self.addnorm1.build(X_shape)
        self.ffn.build(X_shape)
        self.addnorm2.build(X_shape)

    def call(
        self,
        X: Any,
        valid_lens: Any = None,
        training: bool | None = None,
        attention_mask: Any = None,
        return_attention: bool = False,
    ) -> Any:
        before = self.addnorm1.before(X)
        attended, weights = self.attention(
            before,
            before,
            before,
            valid_lens,
            training=training,
            attention_mask=attention_mask,
            return_attention=True,
        )
        Y = self.addnorm1(X, attended, training=training)
        after = self.ffn(self.addnorm2.before(Y), training=training)
        output = self.block_dropout(self.addnorm2(Y, after, training=training), training=training)
        return (output, weights) if return_attention else output

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        # By tracing `call`: the shape alone, below, does not know what else is asked for.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

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
            "ffn_dropout": self.ffn_dropout,
            "block_dropout": self.block_dropout_rate,
            "norm_first": self.norm_first,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "layer_norm": self.layer_norm,
            "activation": self.activation,
            "initializer": self.initializer,
        }
        return {**super().get_config(), **config}
