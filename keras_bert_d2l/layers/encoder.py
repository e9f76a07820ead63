"""The encoder: token ids in, one contextual vector per token out.

B batch, T tokens, D hidden width, V vocabulary, L blocks.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bert_d2l.config import check_choice
from keras_bert_d2l.layers.attention import joint_mask, valid_lens_mask
from keras_bert_d2l.layers.initializers import embedding_initializer, position_initializer
from keras_bert_d2l.layers.layer_norm import layer_normalization
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


def sinusoidal_positions(max_len: int, num_hiddens: int) -> np.ndarray:
    """Returns the fixed position embedding of Vaswani et al. 2017, section 3.5.

    Even columns hold the sine and odd ones the cosine of `position / 10000 ** (column / D)`, with
    the even column of the pair.

    Args:
        max_len: Number of positions.
        num_hiddens: Width, D, even.

    Returns: float32 `(1, max_len, D)`.
    """
    frequencies = 10000.0 ** (-np.arange(0, num_hiddens, 2) / num_hiddens)
    angles = np.arange(max_len)[:, None] * frequencies
    pairs = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return pairs.reshape(1, max_len, num_hiddens).astype("float32")


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
        ffn_dropout: Rate of the dropout inside the feed-forward layers.
        block_dropout: Rate of the dropout at the end of each block.
        num_segments: Rows of the segment embedding.
        positions: `"learned"` or `"sinusoidal"`.
        embedding_norm: Whether the embeddings are layer-normalised.
        norm_first: Whether each sublayer normalises its input.
        final_norm: Whether the output is layer-normalised.
        layer_norm_epsilon: Of every layer normalisation.
        layer_norm: `"biased"` or `"unbiased"`.
        activation: Of the feed-forward layers.
        mask_from: `"valid_lens"` or `"tokens"`: whether the token 0 is padding.
        initializer: `"book"` or `"truncated_normal"`.

    Call arguments:
        tokens: Token ids, int `(B, T)`.
        segments: Segment ids, int `(B, T)`.
        valid_lens: Number of tokens of each row that are not padding, `(B,)`, integers in any
            dtype; `None`: all of them.
        training: Whether dropout acts.
        attention_mask: Which tokens may be attended to, bool or numbers: `(B, T)`, or of each
            token for itself `(B, T, T)`. A token must count in all masks that there are.
        position_ids: Row of the position embedding for each token, int `(B, T)`; `None`: 0, 1, 2
            and so on.
        return_hidden_states: Whether to return the blocks' outputs too.
        return_attention: Whether to return the attention weights too.

    Returns: The encoded tokens, `(B, T, D)`. With either of the last two arguments a dictionary:
        `"encoded"`, the same; `"hidden_states"`, a list of L + 1 arrays `(B, T, D)`, the embeddings
        first and then every block's output; `"attention"`, a list of L arrays `(B, N, T, T)`, the
        weights after the softmax.

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
        ffn_dropout: float = 0.0,
        block_dropout: float = 0.0,
        num_segments: int = 2,
        positions: str = "learned",
        embedding_norm: bool = False,
        norm_first: bool = False,
        final_norm: bool = False,
        layer_norm_epsilon: float = 1e-3,
        layer_norm: str = "biased",
        activation: str = "relu",
        mask_from: str = "valid_lens",
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
        self.ffn_dropout = ffn_dropout
        self.block_dropout = block_dropout
        self.num_segments = num_segments
        self.positions = check_choice("positions", positions)
        self.embedding_norm = embedding_norm
        self.norm_first = norm_first
        self.final_norm = final_norm
        self.layer_norm_epsilon = layer_norm_epsilon
        self.layer_norm = layer_norm
        self.activation = activation
        self.mask_from = check_choice("mask_from", mask_from)
        self.initializer = initializer
        self.token_embedding = self._embedding(vocab_size, "token_embedding")
        self.segment_embedding = self._embedding(num_segments, "segment_embedding")
        self.embedding_ln = self._layer_norm("embedding_ln") if embedding_norm else None
        self.embedding_dropout = keras.layers.Dropout(embedding_dropout, dtype=self.dtype_policy)
        self.blks = [
            TransformerEncoderBlock(
                num_hiddens,
                ffn_num_hiddens,
                num_heads,
                dropout,
                attention_dropout=attention_dropout,
                ffn_dropout=ffn_dropout,
                block_dropout=block_dropout,
                norm_first=norm_first,
                layer_norm_epsilon=layer_norm_epsilon,
                layer_norm=layer_norm,
                activation=activation,
                initializer=initializer,
                dtype=self.dtype_policy,
                name=f"blk_{index}",
            )
            for index in range(num_blks)
        ]
        self.final_ln = self._layer_norm("final_ln") if final_norm else None

    def _embedding(self, size: int, name: str) -> keras.layers.Embedding:
        return keras.layers.Embedding(
            size,
            self.num_hiddens,
            embeddings_initializer=embedding_initializer(self.initializer),
            dtype=self.dtype_policy,
            name=name,
        )

    def _layer_norm(self, name: str) -> keras.layers.Layer:
        return layer_normalization(
            self.layer_norm, self.layer_norm_epsilon, dtype=self.dtype_policy, name=name
        )

    def build(
        self, tokens_shape: Any, segments_shape: Any = None, valid_lens_shape: Any = None
    ) -> None:
        hidden_shape = (*tokens_shape, self.num_hiddens)
        self.token_embedding.build(tokens_shape)
        self.segment_embedding.build(tokens_shape)
        if self.positions == "learned":
            self.pos_embedding = self.add_weight(
                name="pos_embedding",
                shape=(1, self.max_len, self.num_hiddens),
                initializer=position_initializer(self.initializer),
            )
        else:
            self.pos_embedding = sinusoidal_positions(self.max_len, self.num_hiddens)
        for layer in (self.embedding_ln, *self.blks, self.final_ln):
            if layer is not None:
                layer.build(hidden_shape)

    def _check_length(self, tokens: Any) -> None:
        length = tokens.shape[1]
        if length is not None and length > self.max_len:
            raise ValueError(
                f"`tokens` must be at most `max_len` long. Received: tokens.shape="
                f"{tuple(tokens.shape)}, max_len={self.max_len}. Cut the sequences, or build the "
                "model with a larger `max_len`."
            )

    def call(
        self,
        tokens: Any,
        segments: Any,
        valid_lens: Any = None,
        training: bool | None = None,
        attention_mask: Any = None,
        position_ids: Any = None,
        return_hidden_states: bool = False,
        return_attention: bool = False,
    ) -> Any:
        # Under MirroredStrategy ids arrive as floats while Keras builds the model.
        tokens, segments = ops.cast(tokens, "int32"), ops.cast(segments, "int32")
        self._check_length(tokens)
        check_ids(tokens, self.vocab_size, "tokens", "token")
        check_ids(segments, self.num_segments, "segments", "segment")
        X = self.token_embedding(tokens) + self.segment_embedding(segments)
        X = X + self._positions(tokens, position_ids, X.dtype)
        if self.embedding_ln is not None:
            X = self.embedding_ln(X)
        X = self.embedding_dropout(X, training=training)
        mask = self._mask(tokens, valid_lens, attention_mask)  # once, for all blocks
        hidden_states, attention = [X], []
        for block in self.blks:
            X, weights = block(X, attention_mask=mask, training=training, return_attention=True)
            hidden_states.append(X)
            attention.append(weights)
        if self.final_ln is not None:
            X = self.final_ln(X)
        if not (return_hidden_states or return_attention):
            return X
        outputs = {"encoded": X}
        if return_hidden_states:
            outputs["hidden_states"] = hidden_states
        if return_attention:
            outputs["attention"] = attention
        return outputs

    def _positions(self, tokens: Any, position_ids: Any, dtype: Any) -> Any:
        table = ops.cast(self.pos_embedding, dtype)
        if position_ids is None:
            return table[:, : ops.shape(tokens)[1], :]
        position_ids = ops.cast(position_ids, "int32")
        check_ids(position_ids, self.max_len, "position_ids", "position")
        return ops.take(table[0], position_ids, axis=0)

    def _mask(self, tokens: Any, valid_lens: Any, attention_mask: Any) -> Any:
        return joint_mask(
            attention_mask,
            None if valid_lens is None else valid_lens_mask(valid_lens, ops.shape(tokens)[1]),
            tokens > 0 if self.mask_from == "tokens" else None,
        )

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        # By tracing `call`: the shape alone, below, does not know what else is asked for.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

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
            "ffn_dropout": self.ffn_dropout,
            "block_dropout": self.block_dropout,
            "num_segments": self.num_segments,
            "positions": self.positions,
            "embedding_norm": self.embedding_norm,
            "norm_first": self.norm_first,
            "final_norm": self.final_norm,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "layer_norm": self.layer_norm,
            "activation": self.activation,
            "mask_from": self.mask_from,
            "initializer": self.initializer,
        }
        return {**super().get_config(), **config}
