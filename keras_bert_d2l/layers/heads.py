"""Heads: encoded tokens in, one prediction per pretraining task out.

B batch, T tokens, P predicted positions, D hidden width, V vocabulary.
"""

from typing import Any

import keras
from keras import ops

from keras_bert_d2l.config import check_choice
from keras_bert_d2l.layers.initializers import dense_initializer, output_initializer
from keras_bert_d2l.layers.layer_norm import layer_normalization
from keras_bert_d2l.layers.transformer import activation_function


def gather_positions(X: Any, pred_positions: Any) -> Any:
    """Takes the vectors at the given positions.

    `tf.gather_nd` on TensorFlow, a flat `take` elsewhere; `take_along_axis` is six times slower.

    Args:
        X: `(B, T, D)`.
        pred_positions: int `(B, P)`, each in [0, T).

    Returns: `(B, P, D)`.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.gather_nd(X, pred_positions[:, :, None], batch_dims=1)
    batch, length, width = ops.shape(X)
    row_starts = ops.arange(batch, dtype="int32")[:, None] * length
    return ops.take(ops.reshape(X, (-1, width)), pred_positions + row_starts, axis=0)


@keras.saving.register_keras_serializable("keras_bert_d2l")
class MaskLM(keras.layers.Layer):
    """Predicts the original token at each masked position.

    Source: d2l.ai, section 15.8.5.1; google-research/bert, `get_masked_lm_output`. Logits are
    made for the P predicted positions alone, never for all T.

    Args:
        vocab_size: Size of the vocabulary, V.
        num_hiddens: Width of the hidden layer, D.
        token_embedding: The encoder's token embedding, whose transpose is then the last kernel
            (google's tied head); `None`: the head has a dense layer of its own (the book's).
        mlm_head: `"mlp"`, a dense layer and a normalisation before the logits, or `"linear"`, the
            logits alone.
        layer_norm_epsilon: Of the normalisation.
        layer_norm: `"biased"` or `"unbiased"`, see `BERTConfig`.
        activation: Of the hidden layer.
        initializer: `"book"` or `"truncated_normal"`. The last kernel starts small either way,
            so that the loss starts at ln V.

    Call arguments:
        X: Encoded tokens, `(B, T, D)`.
        pred_positions: Positions to predict, int `(B, P)`.

    Output shape: logits, `(B, P, V)`.
    """

    def __init__(
        self,
        vocab_size: int,
        num_hiddens: int,
        *,
        token_embedding: keras.layers.Embedding | None = None,
        mlm_head: str = "mlp",
        layer_norm_epsilon: float = 1e-3,
        layer_norm: str = "biased",
        activation: str = "relu",
        initializer: str = "book",
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.vocab_size = vocab_size
        self.num_hiddens = num_hiddens
        self.token_embedding = token_embedding
        self.mlm_head = check_choice("mlm_head", mlm_head)
        self.layer_norm_epsilon = layer_norm_epsilon
        self.layer_norm = layer_norm
        self.activation = activation
        self.initializer = initializer
        self.mlp = keras.Sequential(self._mlp_layers(), name="mlp")

    def _mlp_layers(self) -> list[keras.layers.Layer]:
        policy, layers = self.dtype_policy, []
        if self.mlm_head == "mlp":
            layers += [
                keras.layers.Dense(
                    self.num_hiddens,
                    activation=activation_function(self.activation),
                    kernel_initializer=dense_initializer(self.initializer),
                    dtype=policy,
                    name="dense",
                ),
                layer_normalization(
                    self.layer_norm, self.layer_norm_epsilon, dtype=policy, name="ln"
                ),
            ]
        if self.token_embedding is None:
            layers.append(
                keras.layers.Dense(
                    self.vocab_size,
                    kernel_initializer=output_initializer(),
                    dtype=policy,
                    name="logits",
                )
            )
        return layers or [keras.layers.Identity(dtype=policy)]  # a Sequential needs one

    def build(self, X_shape: Any, pred_positions_shape: Any = None) -> None:
        self.mlp.build((*X_shape[:-1], X_shape[-1]))
        if self.token_embedding is not None:
            if not self.token_embedding.built:
                self.token_embedding.build(X_shape[:-1])
            self.bias = self.add_weight(name="bias", shape=(self.vocab_size,), initializer="zeros")

    def call(self, X: Any, pred_positions: Any) -> Any:
        Y = self.mlp(gather_positions(X, ops.cast(pred_positions, "int32")))
        if self.token_embedding is None:
            return Y
        kernel = ops.cast(ops.transpose(self.token_embedding.embeddings), Y.dtype)
        return ops.matmul(Y, kernel) + ops.cast(self.bias, Y.dtype)

    def compute_output_shape(self, X_shape: Any, pred_positions_shape: Any) -> Any:
        return (*pred_positions_shape, self.vocab_size)

    def get_config(self) -> dict[str, Any]:
        config = {
            "vocab_size": self.vocab_size,
            "num_hiddens": self.num_hiddens,
            "token_embedding": keras.saving.serialize_keras_object(self.token_embedding),
            "mlm_head": self.mlm_head,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "layer_norm": self.layer_norm,
            "activation": self.activation,
            "initializer": self.initializer,
        }
        return {**super().get_config(), **config}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "MaskLM":
        embedding = config.get("token_embedding")
        if isinstance(embedding, dict):
            embedding = keras.saving.deserialize_keras_object(embedding)
        return cls(**{**config, "token_embedding": embedding})


@keras.saving.register_keras_serializable("keras_bert_d2l")
class NextSentencePred(keras.layers.Layer):
    """Tells whether the second segment followed the first: column 1 of the logits is "is next".

    Source: d2l.ai, section 15.8.5.2.

    Call arguments:
        X: `(B, D)`, of any width.

    Output shape: logits, `(B, 2)`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # Keras layers have a property `output`, the book's name for this layer in PyTorch.
        self.dense = keras.layers.Dense(
            2, kernel_initializer=output_initializer(), dtype=self.dtype_policy, name="dense"
        )

    def build(self, X_shape: Any) -> None:
        self.dense.build(X_shape)

    def call(self, X: Any) -> Any:
        return self.dense(X)

    def compute_output_shape(self, X_shape: Any) -> Any:
        return (*X_shape[:-1], 2)
