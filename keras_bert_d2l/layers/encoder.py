"""The encoder: token ids in, one contextual vector per token out.

B batch, T tokens, D hidden width, V vocabulary, L blocks.
"""

from typing import Any

import keras
from keras import ops

from keras_bert_d2l.layers.initializers import (
    check_initializer,
    embedding_initializer,
    position_initializer,
)
from keras_bert_d2l.layers.transformer import TransformerEncoderBlock


def check_ids(ids: Any, size: int, name: str, table: str) -> None:
    """Refuses ids that have no row in an embedding, where their values are at hand.

    TensorFlow's gather raises on a CPU but reads zeros on a GPU. In a graph the values are not
    known yet; there the data pipeline has checked them.
    """
    if not hasattr(ids, "numpy"):  # a symbolic tensor, or a traced one
        return
    values = ids.numpy()
    if values.size and (values.min() < 0 or values.max() >= size):
        worst = values.min() if values.min() < 0 else values.max()
        raise ValueError(
            f"`{name}` must be ids from 0 to {size - 1}, the rows of the {table} embedding. "
            f"Received the id {worst}. Use the vocabulary that the model was made for."
        )


@keras.saving.register_keras_serializable("keras_bert_d2l")
class BERTEncoder(keras.layers.Layer):
    """BERT's encoder: summed embeddings and a stack of Transformer blocks.

    Source: d2l.ai, section 15.8.4; Devlin et al. 2019, section 3. The defaults are the book's;
    the options make it google's, see `BERTConfig`.

    Args:
        vocab_size: Size of the vocabulary, V.
        num_hiddens: Width of the hidden states, D.
        ffn_num_hiddens: Width of the feed-forward layers.
        num_heads: Attention heads per block.
        num_blks: Number of blocks, L.
        dropout: Rate of the dropout after each sublayer.
        max_len: Longest sequence.
        attention_dropout: Rate of the dropout on the attention weights; `None`: as `dropout`.
        embedding_dropout: Rate of the dropout on the embeddings.
        num_segments: Rows of the segment embedding.
        embedding_norm: Whether the embeddings are layer-normalised.
        layer_norm_epsilon: Added to the variance in every layer normalisation.
        activation: Of the feed-forward layers.
        initializer: `"book"` or `"truncated_normal"`.

    Call arguments:
        tokens: Token ids, int `(B, T)`.
        segments: Segment ids, int `(B, T)`.
        valid_lens: Number of tokens of each row that are not padding, `(B,)`, integers in any
            dtype; `None`: all of them.
        training: Whether dropout acts.

    Output shape: `(B, T, D)`.
    """

    def __init__(
        self,
        vocab_size: int,
        num_hiddens: int,
        ffn_num_hiddens: int,
        num_heads: int,
        num_blks: int,
        dropout: float,
        max_len: int = 1000,
        *,
        attention_dropout: float | None = None,
        embedding_dropout: float = 0.0,
        num_segments: int = 2,
        embedding_norm: bool = False,
        layer_norm_epsilon: float = 1e-3,
        activation: str = "relu",
        initializer: str = "book",
        **kwargs: Any,
    ) -> None:
        # Lengths arrive as floats from the book's loader; autocast would round 257 to 256.
        super().__init__(autocast=False, **kwargs)
        self.vocab_size = vocab_size
        self.num_hiddens = num_hiddens
        self.ffn_num_hiddens = ffn_num_hiddens
        self.num_heads = num_heads
        self.num_blks = num_blks
        self.dropout_rate = dropout
        self.max_len = max_len
        self.attention_dropout = attention_dropout
        self.embedding_dropout_rate = embedding_dropout
        self.num_segments = num_segments
        self.embedding_norm = embedding_norm
        self.layer_norm_epsilon = layer_norm_epsilon
        self.activation = activation
        self.initializer = check_initializer(initializer)
        policy = self.dtype_policy
        self.token_embedding = keras.layers.Embedding(
            vocab_size,
            num_hiddens,
            embeddings_initializer=embedding_initializer(initializer),
            dtype=policy,
            name="token_embedding",
        )
        self.segment_embedding = keras.layers.Embedding(
            num_segments,
            num_hiddens,
            embeddings_initializer=embedding_initializer(initializer),
            dtype=policy,
            name="segment_embedding",
        )
        self.embedding_ln = (
            keras.layers.LayerNormalization(
                epsilon=layer_norm_epsilon, dtype=policy, name="embedding_ln"
            )
            if embedding_norm
            else None
        )
        self.embedding_dropout = keras.layers.Dropout(embedding_dropout, dtype=policy)
        self.blks = [
            TransformerEncoderBlock(
                num_hiddens,
                ffn_num_hiddens,
                num_heads,
                dropout,
                attention_dropout=attention_dropout,
                layer_norm_epsilon=layer_norm_epsilon,
                activation=activation,
                initializer=initializer,
                dtype=policy,
                name=f"blk_{index}",
            )
            for index in range(num_blks)
        ]

    def build(
        self, tokens_shape: Any, segments_shape: Any = None, valid_lens_shape: Any = None
    ) -> None:
        hidden_shape = (*tokens_shape, self.num_hiddens)
        self.token_embedding.build(tokens_shape)
        self.segment_embedding.build(tokens_shape)
        self.pos_embedding = self.add_weight(
            name="pos_embedding",
            shape=(1, self.max_len, self.num_hiddens),
            initializer=position_initializer(self.initializer),
        )
        if self.embedding_ln is not None:
            self.embedding_ln.build(hidden_shape)
        for block in self.blks:
            block.build(hidden_shape)

    def _check_length(self, tokens: Any) -> None:
        length = tokens.shape[1]
        if length is not None and length > self.max_len:
            raise ValueError(
                f"`tokens` must be at most `max_len` long. Received: tokens.shape="
                f"{tuple(tokens.shape)}, max_len={self.max_len}. Cut the sequences, or build the "
                "model with a larger `max_len`."
            )

    def call(
        self, tokens: Any, segments: Any, valid_lens: Any = None, training: bool | None = None
    ) -> Any:
        # Under MirroredStrategy ids arrive as floats while Keras builds the model.
        tokens, segments = ops.cast(tokens, "int32"), ops.cast(segments, "int32")
        self._check_length(tokens)
        check_ids(tokens, self.vocab_size, "tokens", "token")
        check_ids(segments, self.num_segments, "segments", "segment")
        X = self.token_embedding(tokens) + self.segment_embedding(segments)
        X = X + ops.cast(self.pos_embedding, X.dtype)[:, : ops.shape(tokens)[1], :]
        if self.embedding_ln is not None:
            X = self.embedding_ln(X)
        X = self.embedding_dropout(X, training=training)
        for block in self.blks:
            X = block(X, valid_lens, training=training)
        return X

    def compute_output_shape(
        self, tokens_shape: Any, segments_shape: Any = None, valid_lens_shape: Any = None
    ) -> Any:
        return (*tokens_shape, self.num_hiddens)

    def get_config(self) -> dict[str, Any]:
        config = {
            "vocab_size": self.vocab_size,
            "num_hiddens": self.num_hiddens,
            "ffn_num_hiddens": self.ffn_num_hiddens,
            "num_heads": self.num_heads,
            "num_blks": self.num_blks,
            "dropout": self.dropout_rate,
            "max_len": self.max_len,
            "attention_dropout": self.attention_dropout,
            "embedding_dropout": self.embedding_dropout_rate,
            "num_segments": self.num_segments,
            "embedding_norm": self.embedding_norm,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "activation": self.activation,
            "initializer": self.initializer,
        }
        return {**super().get_config(), **config}
