"""Pretraining heads, and output layers of tasks.

B batch, T tokens, P predicted positions, D hidden width, V vocabulary.
"""

from typing import Literal, TypeAlias, Unpack

import keras
import numpy as np
from keras import ops

from keras_bert_d2l.block_config import Activation, Initializer, LayerNorm
from keras_bert_d2l.checks import check_bool, check_that, check_type
from keras_bert_d2l.config import BERTConfig, MLMHead, check_field
from keras_bert_d2l.layers.base import (
    NestedLayer,
    activation_function,
    layer_normalization,
    output_initializer,
    weights_initializer,
)
from keras_bert_d2l.layers.inputs import gather_positions
from keras_bert_d2l.layers.kernels.fusion import Dense, add_bias
from keras_bert_d2l.types import ConfigDict, LayerOptions, Option, Shape, Tensor

_NEVER = -3e4  # added to a logit; finite in float16, and its probability is 0
TextPooling: TypeAlias = Literal["cls", "mean"]


@keras.saving.register_keras_serializable("keras_bert_d2l")
class MaskLM(NestedLayer):
    """Masked-language-model head: predicts the original token at each masked position.

    Logits are computed only for the P predicted positions, not for all T tokens.

    A tied head has no configuration. To save it in a model, use a `BERTModel` as a layer.

    Source: d2l.ai, section 15.8.5.1; google-research/bert, `get_masked_lm_output`.

    Args:
        vocab_size: Size of the vocabulary, V.
        num_hiddens: Width of the hidden layer, D (or E, if the encoder has an `embedding_width`).
        token_embedding: The encoder's token embedding, a `keras.layers.ReversibleEmbedding`, whose
            transpose becomes the output kernel (tied weights, as in google-research/bert). `None`:
            a separate dense layer, as in the book.
        mlm_head: `"mlp"`: a dense layer and layer normalization before the logits; `"linear"`:
            only the logits.
        layer_norm_epsilon: Epsilon of the layer normalization.
        layer_norm: `"biased"` or `"unbiased"`, see `BERTConfig`.
        activation: Activation of the hidden layer, as in `BERTConfig`.
        initializer: `"book"` or `"truncated_normal"`. With both, the output kernel starts small,
            so that the initial loss is about ln V.
        initializer_range: Standard deviation of `"truncated_normal"` and of the output kernel.
        num_tokens: Number of tokens that may be predicted, the first ones; `None`: V.
        bias_free: Whether the hidden layer and its normalization have no bias.
        **kwargs: `name`, `dtype` and `trainable`, as for every Keras layer.

    Call arguments:
        X: Encoded tokens, `(B, T, D)`.
        pred_positions: Positions to predict in each row, int `(B, P)`. `None`: all T positions, so
            P = T.

    Output shape: logits, `(B, P, V)`.

    Raises:
        ValueError: An option is out of range, or `token_embedding` is not a
            `keras.layers.ReversibleEmbedding` of the same size.

    Example:

    ```python
    import numpy as np
    import keras_bert_d2l as kb

    mlm = kb.MaskLM(vocab_size=10000, num_hiddens=768)
    encoded_X = np.random.normal(size=(2, 8, 768))
    mlm_Y_hat = mlm(encoded_X, np.array([[1, 5, 2], [6, 1, 5]]))
    assert mlm_Y_hat.shape == (2, 3, 10000)
    ```
    """

    def __init__(
        self,
        vocab_size: int,
        num_hiddens: int,
        *,
        token_embedding: keras.layers.ReversibleEmbedding | None = None,
        mlm_head: MLMHead = "mlp",
        layer_norm_epsilon: float = 1e-3,
        layer_norm: LayerNorm = "biased",
        activation: Activation = "relu",
        initializer: Initializer = "book",
        initializer_range: float = 0.02,
        num_tokens: int | None = None,
        bias_free: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.num_tokens = None if num_tokens is None else check_field("num_tokens", num_tokens)
        self.vocab_size = check_field("vocab_size", vocab_size)
        self.num_hiddens = check_field("num_hiddens", num_hiddens)
        self.token_embedding = token_embedding
        if token_embedding is not None:
            check_type("token_embedding", token_embedding, keras.layers.ReversibleEmbedding)
            size = (token_embedding.input_dim, token_embedding.output_dim)
            expected = f"an embedding of the size of the head, {(vocab_size, num_hiddens)}"
            check_that(size == (vocab_size, num_hiddens), "token_embedding", expected, size)
        self.mlm_head = check_field("mlm_head", mlm_head)
        self.layer_norm_epsilon = layer_norm_epsilon
        self.layer_norm = layer_norm
        self.activation = activation
        self.bias_free = check_bool("bias_free", bias_free)
        policy, layers = self.dtype_policy, []
        if mlm_head == "mlp":
            layers += [
                Dense(
                    num_hiddens,
                    activation=activation_function(activation),
                    use_bias=not bias_free,
                    kernel_initializer=weights_initializer("dense", initializer, initializer_range),
                    dtype=policy,
                    name="dense",
                ),
                layer_normalization(
                    *(layer_norm, layer_norm_epsilon, bias_free), dtype=policy, name="ln"
                ),
            ]
        if token_embedding is None:
            layers.append(
                Dense(
                    vocab_size,
                    kernel_initializer=output_initializer(initializer_range),
                    dtype=policy,
                    name="logits",
                )
            )
        # A model may not be empty.
        self.mlp = keras.Sequential(layers or [keras.layers.Identity(dtype=policy)], name="mlp")

    def build(self, X_shape: Shape, pred_positions_shape: Shape | None = None) -> None:
        self.mlp.build(tuple(X_shape))
        if self.token_embedding is not None:
            if not self.token_embedding.built:
                self.token_embedding.build(X_shape[:-1])
            self.bias = self.add_weight(name="bias", shape=(self.vocab_size,), initializer="zeros")

    def call(self, X: Tensor, pred_positions: Tensor | None = None) -> Tensor:
        if pred_positions is not None:
            X = gather_positions(X, pred_positions, "pred_positions")  # (B, P, D)
        Y = self.mlp(X)  # (B, P, V), or (B, P, D) if the output kernel is tied
        if self.token_embedding is None:
            return self._of_tokens(Y)
        rows = ops.reshape(Y, (-1, self.num_hiddens))  # (B P, D): a matrix, as quantization needs
        logits = self.token_embedding(rows, reverse=True)  # (B P, V)
        logits = add_bias(logits, ops.cast(self.bias, logits.dtype))
        logits = ops.reshape(logits, (*ops.shape(Y)[:-1], self.vocab_size))  # (B, P, V)
        return self._of_tokens(logits)

    def _of_tokens(self, logits: Tensor) -> Tensor:
        return logits if self.num_tokens is None else logits + ops.cast(self.penalty, logits.dtype)

    @property
    def penalty(self) -> np.ndarray:
        """What is added to the logits `(V,)`, so that rows without a token are never predicted."""
        is_token = np.arange(self.vocab_size) < (self.num_tokens or self.vocab_size)
        return np.where(is_token, 0, np.float32(_NEVER))


@keras.saving.register_keras_serializable("keras_bert_d2l")
class NextSentencePred(NestedLayer):
    """Next-sentence head: predicts whether the second segment followed the first.

    Column 1 of the logits is "is next".

    Source: d2l.ai, section 15.8.5.2.

    Args:
        initializer_range: Standard deviation of the initial weights.
        **kwargs: `name`, `dtype` and `trainable`, as for every Keras layer.

    Call arguments:
        X: Vectors, `(B, D)`, for any D.

    Output shape: logits, `(B, 2)`.

    Example:

    ```python
    import numpy as np
    import keras_bert_d2l as kb

    nsp = kb.NextSentencePred()
    nsp_Y_hat = nsp(np.random.normal(size=(2, 768)))
    assert nsp_Y_hat.shape == (2, 2)
    ```
    """

    def __init__(self, *, initializer_range: float = 0.02, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        # The book's PyTorch edition calls it `output`, but that is a property of Keras layers.
        self.dense = Dense(
            2,
            kernel_initializer=output_initializer(initializer_range),
            dtype=self.dtype_policy,
            name="dense",
        )

    def build(self, X_shape: Shape) -> None:
        self.dense.build(X_shape)

    def call(self, X: Tensor) -> Tensor:
        return self.dense(X)


@keras.saving.register_keras_serializable("keras_bert_d2l")
class ReplacedTokenPred(NestedLayer):
    """Replaced-token head: tells tokens that were replaced from those of the original text.

    It is the head of ELECTRA's discriminator. The sigmoid of a logit is the probability that the
    token was replaced.

    Source: Clark et al. 2020 (ELECTRA), section 3; google-research/electra,
    `get_discriminator_output`.

    Args:
        num_hiddens: Width of the hidden layer, D.
        activation: Activation of the hidden layer, as in `BERTConfig`.
        initializer: As for `MaskLM`, as is `initializer_range`.
        initializer_range: Standard deviation of the initial weights.
        **kwargs: `name`, `dtype` and `trainable`, as for every Keras layer.

    Call arguments:
        X: Encoded tokens, `(B, T, D)`.

    Output shape: logits, `(B, T)`.

    Raises:
        ValueError: An option is out of range.

    Example:

    ```python
    import numpy as np
    import keras_bert_d2l as kb

    rtd = kb.ReplacedTokenPred(num_hiddens=256)
    rtd_Y_hat = rtd(np.random.normal(size=(2, 8, 256)))
    assert rtd_Y_hat.shape == (2, 8)
    ```
    """

    def __init__(
        self,
        num_hiddens: int,
        *,
        activation: Activation = "gelu",
        initializer: Initializer = "truncated_normal",
        initializer_range: float = 0.02,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.num_hiddens = check_field("num_hiddens", num_hiddens)
        self.dense = Dense(
            num_hiddens,
            activation=activation_function(activation),
            kernel_initializer=weights_initializer("dense", initializer, initializer_range),
            dtype=self.dtype_policy,
            name="dense",
        )
        small = output_initializer(initializer_range)
        self.logits = Dense(1, kernel_initializer=small, dtype=self.dtype_policy, name="logits")

    def build(self, X_shape: Shape) -> None:
        self.dense.build(X_shape)
        self.logits.build((*X_shape[:-1], self.num_hiddens))

    def call(self, X: Tensor) -> Tensor:
        return self.logits(self.dense(X))[..., 0]


@keras.saving.register_keras_serializable("keras_bert_d2l")
class NormalizedDense(Dense):
    """A dense layer, and a layer normalization of its output: the pooler of ModernBERT."""

    def __init__(self, units: int, *, layer_norm_epsilon: float = 1e-5, **options: Option) -> None:
        super().__init__(units, **options)
        self.ln = layer_normalization(
            *("biased", layer_norm_epsilon, not self.use_bias), dtype=self.dtype_policy, name="ln"
        )

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        self.ln.build((*input_shape[:-1], self.units))
        self.ln.axis = [-1]  # Keras 3.16 counts it from the front, but the rank of X may vary

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        return self.ln(super().call(inputs, training=training))

    def get_config(self) -> ConfigDict:
        return {**super().get_config(), "layer_norm_epsilon": self.ln.epsilon}


def pooler_of(config: BERTConfig, policy: str | keras.DTypePolicy) -> keras.layers.Dense:
    """Return the layer between `[CLS]` and the heads that read it, for a configuration."""
    normalized = {"layer_norm_epsilon": config.layer_norm_epsilon} if config.pooler_norm else {}
    return (NormalizedDense if config.pooler_norm else Dense)(
        config.num_hiddens,
        activation=activation_function(config.pooler_activation),
        use_bias=not config.bias_free,
        kernel_initializer=weights_initializer(
            "dense", config.initializer, config.initializer_range
        ),
        dtype=policy,
        name="pooler",
        **normalized,
    )


def is_pooler(layer: object, config: BERTConfig) -> bool:
    """Return whether a layer computes what the pooler of a configuration does."""
    kind = NormalizedDense if config.pooler_norm else keras.layers.Dense
    if not isinstance(layer, kind) or layer.units != config.num_hiddens:
        return False
    name = config.pooler_activation
    known = {activation_function(name)}
    if name != "gelu_tanh":  # Keras has no function of this name
        known.add(keras.activations.get(name))
    return layer.use_bias is not config.bias_free and layer.activation in known


def dense_head(bert: keras.Model, num_outputs: int) -> keras.layers.Dense:
    """Return a randomly initialized output layer for a task of a BERT."""
    return Dense(
        num_outputs,
        kernel_initializer=output_initializer(bert.bert_config.initializer_range),
        dtype=precise_policy(bert),
        name="head",
    )


def precise_policy(bert: keras.Model) -> str | keras.DTypePolicy:
    """Return the dtype policy of the outputs: float32 instead of half precision."""
    half = bert.dtype_policy.compute_dtype in ("float16", "bfloat16")
    return "float32" if half else bert.dtype_policy
