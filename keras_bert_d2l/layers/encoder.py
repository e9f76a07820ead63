"""BERT's encoder: one contextual vector per token.

B batch, T tokens, D hidden width, N heads, V vocabulary, L blocks.
"""

from typing import Any, Literal, TypeAlias

import keras
from keras import ops

from keras_bert_d2l.checks import wrong
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.layers.base import NestedLayer, layer_normalization, weights_initializer
from keras_bert_d2l.layers.inputs import (
    check_shapes,
    check_values,
    gather_positions,
    holds_text,
    is_known,
    known_sizes,
)
from keras_bert_d2l.layers.kernels.attention import joined_mask
from keras_bert_d2l.layers.kernels.fusion import Dense, Dropout, ReversibleEmbedding
from keras_bert_d2l.layers.positions import (
    RelativePositions,
    counted_positions,
    relative_layer,
    relative_positions_of_blocks,
    sinusoidal_positions,
)
from keras_bert_d2l.layers.transformer import NeighborConv, TransformerEncoderBlock, rematerialized
from keras_bert_d2l.types import ConfigDict, LayerOptions, Option, Shape, Tensor

Remat: TypeAlias = Literal["none", "blocks"]


@keras.saving.register_keras_serializable("keras_bert_d2l")
class BERTEncoder(NestedLayer):
    """BERT's encoder: summed embeddings and a stack of Transformer blocks.

    Source: d2l.ai, section 15.8.4; Devlin et al. 2019, section 3. The defaults are the book's.

    Args:
        vocab_size: Size of the vocabulary, V; or a `BERTConfig`, which replaces all sizes.
        num_hiddens: Width of the hidden states, D.
        ffn_num_hiddens: Width of the feed-forward networks.
        num_heads: Attention heads per block, N.
        num_blks: Number of blocks, L.
        dropout: Dropout rate after each sublayer.
        max_len: Maximum sequence length, in tokens.
        token_embedding: An embedding of the same size to share instead of a new one, such as that
            of another encoder. It is not part of the configuration that Keras saves.
        **options: The keyword arguments of `BERTConfig` (those of the heads have no effect);
            `name`, `dtype` and `trainable`, as for every Keras layer.

    Attributes:
        base_embedding: A token embedding whose vectors are added to those of `token_embedding`,
            without a gradient; `None` by default.
        remat: `"blocks"`: keep only the input of each block for the backward pass, which computes
            the block again. `compile(remat=...)` of a model sets it.

    Call arguments:
        tokens: Token ids, int `(B, T)`.
        segments: Segment ids, int `(B, T)`: 0 for the first text and 1 for the second. `None`: 0
            for all tokens. The encoder adds `first_segment_id`; see `BERTConfig`.
        valid_lens: Number of non-padding tokens in each row, `(B,)`, integers in any dtype.
            `None`: all tokens.
        training: Whether to apply dropout.
        attention_mask: Tokens to attend to, bool or numeric: `(B, T)`, or `(B, T, T)` with one
            mask per query token. A token must be allowed by all masks.
        position_ids: Position of each token, int `(B, T)`, counted from 0: the encoder adds
            `first_position_id`. `None`: 0, 1, 2, ...; with a `first_position_id`, the number of
            tokens before it that are not padding.
        return_hidden_states: Whether to return the output of every block as well.
        return_attention: Whether to return the attention weights as well.
        positions: The tokens to return, int `(B, P)`. The last block computes no others. `None`:
            all tokens.
        example_ids: Index of each token's example in a packed row, int `(B, T)`, from 1; 0 for
            padding. Tokens attend only to tokens of the same example.
        token_vectors: What to read in place of the embeddings of `tokens`, `(B, T, D)`, as from
            the method `token_vectors`. The mask still depends on `tokens`.

    Returns: The encoded tokens, `(B, T, D)`, or `(B, P, D)` with `positions`. With
        `return_hidden_states` or `return_attention`, a dictionary: `"encoded"`, the encoded tokens;
        `"hidden_states"`, a list of L + 1 tensors `(B, T, D)`, the embeddings followed by the
        output of every block, the last one after the final normalization, if there is one;
        `"attention"`, a list of L tensors `(B, N, T, T)`, the attention weights of every block.
        With `positions`, the last hidden states are `(B, P, D)`, and the last attention weights
        `(B, N, P, T)`.

    Raises:
        ValueError: An option, an id or the sequence length is out of range, or a model with a
            `conv_kernel_size`, which combines neighbors, gets `example_ids`.

    Example:

    ```python
    import numpy as np
    import keras_bert_d2l as kb

    encoder = kb.BERTEncoder(10000, 768, 1024, num_heads=4, num_blks=2, dropout=0.2)
    tokens = np.random.randint(0, 10000, (2, 8))
    segments = np.array([[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1, 1]])
    encoded_X = encoder(tokens, segments)
    assert encoded_X.shape == (2, 8, 768)
    ```
    """

    def __init__(
        self,
        vocab_size: int | BERTConfig,
        num_hiddens: int | None = None,
        ffn_num_hiddens: int | None = None,
        num_heads: int | None = None,
        num_blks: int | None = None,
        dropout: float | None = None,
        max_len: int = 1000,
        token_embedding: keras.layers.ReversibleEmbedding | None = None,
        **options: Option,
    ) -> None:
        config, layer_options = BERTConfig.split_arguments(
            *(vocab_size, num_hiddens, ffn_num_hiddens, num_heads, num_blks, dropout, max_len),
            **options,
        )
        # Disable autocast: the book's loader yields float lengths, and bfloat16 rounds 257 to 256.
        super().__init__(autocast=False, **layer_options)
        self.config = config
        self.remat: Remat = "none"
        policy = self.dtype_policy
        self.base_embedding: Any = None
        self.token_embedding = token_embedding or self._embedding(
            config.vocab_size, "token_embedding", zero_rows=int(config.zero_padding)
        )
        self.segment_embedding: Any = None
        if config.num_segments:
            self.segment_embedding = self._embedding(
                config.num_segments, "segment_embedding", zero_rows=config.first_segment_id
            )
        self.embedding_ln = self._layer_norm("embedding_ln") if config.embedding_norm else None
        self.embedding_dropout = Dropout(config.embedding_dropout, dtype=policy)
        self.embedding_projection = None
        if config.embedding_width:
            self.embedding_projection = Dense(
                config.num_hiddens,
                use_bias=not config.bias_free,
                kernel_initializer=weights_initializer(
                    "dense", config.initializer, config.initializer_range
                ),
                dtype=policy,
                name="embedding_projection",
            )
        self.relative, self.conv = relative_layer(config, policy), None
        if config.conv_kernel_size:
            self.conv = NeighborConv(config, dtype=policy, name="conv")
        self.blks = [
            TransformerEncoderBlock(
                **{
                    **config.block_fields(),
                    "skip_first_norm": config.skip_first_norm and index == 0,
                },
                dtype=policy,
                name=f"blk_{index}",
            )
            for index in range(min(config.num_blks, 1) if config.shared_blocks else config.num_blks)
        ]
        self.blks *= config.num_blks if config.shared_blocks else 1
        self.final_ln = self._layer_norm("final_ln") if config.final_norm else None

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Return the outputs for token ids; raise `ValueError` for strings."""
        if holds_text(tokens := arguments[0] if arguments else options.get("tokens")):
            raise wrong("tokens", "token ids, as in encoder(**tokenizer(texts))", tokens)
        return super().__call__(*arguments, **options)

    def call(
        self,
        tokens: Tensor,
        segments: Tensor | None = None,
        valid_lens: Tensor | None = None,
        training: bool | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        return_hidden_states: bool = False,
        return_attention: bool = False,
        positions: Tensor | None = None,
        example_ids: Tensor | None = None,
        token_vectors: Tensor | None = None,
    ) -> Tensor | dict[str, Tensor]:
        self._check(
            tokens=tokens,
            segments=segments,
            valid_lens=valid_lens,
            attention_mask=attention_mask,
            position_ids=position_ids,
            example_ids=example_ids,
        )
        if self.conv is not None and example_ids is not None:
            raise wrong("example_ids", "None with `conv_kernel_size`: do not pack", example_ids)
        segments = ops.zeros_like(tokens) if segments is None else segments
        # While Keras builds a model under MirroredStrategy, ids arrive as floats.
        tokens, segments = ops.cast(tokens, "int32"), ops.cast(segments, "int32")  # both (B, T)
        X = self.token_vectors(tokens)  # (B, T, D or E)
        X = X if token_vectors is None else ops.cast(token_vectors, X.dtype)
        X = self._embed(X, tokens, segments, position_ids, training)  # (B, T, D)
        X, hidden_states, attention = self._run_blocks(
            X,
            positions,
            return_attention,
            relative_positions_of_blocks(self.config, X, position_ids, self.relative),
            training=training,
            attention_mask=self.mask(tokens, valid_lens, attention_mask, example_ids),
        )
        encoded = X if self.final_ln is None else self.final_ln(X)  # (B, T or P, D)
        outputs = {"encoded": encoded}
        outputs |= {"hidden_states": [*hidden_states[:-1], encoded]} if return_hidden_states else {}
        outputs |= {"attention": attention} if return_attention else {}
        return outputs if return_hidden_states or return_attention else encoded

    def token_vectors(self, tokens: Tensor) -> Tensor:
        """Return the embeddings of tokens alone, `(B, T, D)`, or as wide as `embedding_width`.

        Args:
            tokens: Token ids, int `(B, T)`.
        """
        if self.config.use_one_hot_embeddings and not self.token_embedding.quantization_mode:
            one_hot = ops.one_hot(tokens, self.config.vocab_size, dtype=self.compute_dtype)
            X = ops.matmul(one_hot, ops.cast(self.token_embedding.embeddings, self.compute_dtype))
        else:
            X = self.token_embedding(tokens)
        if self.base_embedding is not None:
            X = X + ops.stop_gradient(self.base_embedding(tokens))
        return X

    def _embed(
        self, X: Tensor, tokens: Tensor, segments: Tensor, position_ids: Tensor, training: Any
    ) -> Tensor:
        """Return the sum of all embeddings, normalized and after dropout, `(B, T, D)`."""
        is_padding, has_padding_segment = ops.equal(tokens, self.config.pad_id), False
        if self.config.num_segments == 1:
            segments = ops.zeros_like(tokens)
        if self.config.first_segment_id:
            segments = segments + self.config.first_segment_id
            if has_padding_segment := self.config.mask_from == "tokens":
                segments = ops.where(is_padding, 0, segments)
        if self.config.zero_padding:
            X = _untrained(X, is_padding)
        if self.segment_embedding is not None:
            of_segments = self.segment_embedding(segments)
            if has_padding_segment:
                of_segments = _untrained(of_segments, is_padding)
            X = X + of_segments
        if self.pos_embedding is not None:
            X = X + self._positions(tokens, position_ids, X.dtype)
        X = X if self.embedding_ln is None else self.embedding_ln(X)
        X = self.embedding_dropout(X, training=training)
        if self.embedding_projection is not None:
            X = self.embedding_projection(X, training=training)
        return X

    def mask(
        self,
        tokens: Tensor,
        valid_lens: Tensor | None = None,
        attention_mask: Tensor | None = None,
        example_ids: Tensor | None = None,
    ) -> Tensor | None:
        """Return the one mask of the attention, bool `(B, 1 or T, T)`. `None`: all tokens.

        Args:
            tokens: Token ids, int `(B, T)`. With `mask_from="tokens"`, padding is masked.
            valid_lens: As for `call`.
            attention_mask: As for `call`.
            example_ids: As for `call`.
        """
        is_token = None
        if self.config.mask_from == "tokens":
            is_token = ops.cast(tokens, "int32") != self.config.pad_id
        options = {"example_ids": example_ids, "is_token": is_token}
        return joined_mask(ops.shape(tokens)[1], valid_lens, attention_mask, **options)

    def _run_blocks(
        self,
        X: Tensor,
        positions: Tensor | None,
        return_attention: bool,
        relative_positions: list[RelativePositions | None],
        **options: Tensor,
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Return the output of the last block, all hidden states, and all attention weights."""
        hidden_states, attention = [X], []
        if positions is not None and not self.blks:
            X = gather_positions(X, positions, "positions")  # (B, P, D)
        for index, block in enumerate(self.blks):
            options["positions"] = positions if index == len(self.blks) - 1 else None
            options["relative_positions"] = relative_positions[index]
            if return_attention:
                X, weights = block(X, **options, return_attention=True)
                attention.append(weights)  # (B, N, T or P, T)
            elif (
                options["training"]
                and self.remat == "blocks"
                and not isinstance(X, keras.KerasTensor)
            ):
                X = rematerialized(block, X, **options)  # (B, T or P, D)
            else:
                X = block(X, **options)  # (B, T or P, D)
            if index == 0 and self.conv is not None:
                mask, training = options["attention_mask"], options["training"]
                X = self.conv(hidden_states[0], X, mask, options["positions"], training=training)
            hidden_states.append(X)
        return X, hidden_states, attention

    def _embedding(self, size: int, name: str, zero_rows: int) -> keras.layers.ReversibleEmbedding:
        return ReversibleEmbedding(  # a tied MLM head uses it in reverse
            size,
            self.config.width_of_embeddings,
            embeddings_initializer=weights_initializer(
                "embedding", self.config.initializer, self.config.initializer_range, zero_rows
            ),
            reverse_dtype=self.compute_dtype,
            dtype=self.dtype_policy,
            name=name,
        )

    def _layer_norm(self, name: str) -> keras.layers.Layer:
        kind, epsilon = self.config.layer_norm, self.config.layer_norm_epsilon
        options: LayerOptions = {"dtype": self.dtype_policy, "name": name}
        return layer_normalization(kind, epsilon, self.config.bias_free, **options)

    def build(
        self,
        tokens_shape: Shape,
        segments_shape: Shape | None = None,
        valid_lens_shape: Shape | None = None,
    ) -> None:
        max_len, width = self.config.max_len, self.config.width_of_embeddings
        if not self.token_embedding.built:
            self.token_embedding.build(tokens_shape)
        if self.segment_embedding is not None:
            self.segment_embedding.build(tokens_shape)
        if self.config.positions == "learned":
            self.pos_embedding = self.add_weight(
                name="pos_embedding",
                shape=(1, max_len + self.config.first_position_id, width),
                initializer=weights_initializer(
                    "positions", self.config.initializer, self.config.initializer_range
                ),
            )
        elif self.config.positions == "sinusoidal":
            self.pos_embedding = sinusoidal_positions(max_len, width)
        else:
            self.pos_embedding = None
        for layer in (self.embedding_ln, self.embedding_projection, self.relative):
            if layer is not None:
                layer.build((*tokens_shape, width))
        for layer in dict.fromkeys((*self.blks, self.final_ln, self.conv)):
            if layer is not None:
                layer.build((*tokens_shape, self.config.num_hiddens))

    def _check(self, **features: Tensor) -> None:
        """Raise `ValueError` if a shape is wrong or, outside of graphs, an id or a length."""
        given = {name: x for name, x in features.items() if x is not None}
        check_shapes({name: x.shape for name, x in given.items()}, self.config.max_len)
        if all(map(is_known, given.values())):
            check_values(given, given["tokens"].shape[1], self.config)

    def _positions(self, tokens: Tensor, position_ids: Tensor | None, dtype: str) -> Tensor:
        """Return the position embeddings, `(1, T, D)` or, with `position_ids`, `(B, T, D)`."""
        table = ops.cast(self.pos_embedding, dtype)
        length = ops.shape(tokens)[1]
        if self.config.first_position_id:
            position_ids = counted_positions(tokens, position_ids, self.config)
        if position_ids is None and (length is None or known_sizes([length]) != [None]):
            return table[:, :length, :]
        if position_ids is None:  # JAX cannot slice up to an unknown length
            position_ids = ops.arange(length)[None]
        return ops.take(table[0], ops.cast(position_ids, "int32"), axis=0)

    def get_config(self) -> ConfigDict:
        return {**super().get_config(), **self.config.to_dict()}


def _untrained(X: Tensor, is_padding: Tensor) -> Tensor:
    """Return `X` `(B, T, D)`, without a gradient where `is_padding` `(B, T)`."""
    return ops.where(is_padding[:, :, None], ops.stop_gradient(X), X)
