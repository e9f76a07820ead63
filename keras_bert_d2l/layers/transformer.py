"""Transformer encoder block, and activation checkpointing.

B batch, T tokens, D hidden width, N heads.
"""

import dataclasses

import keras
from keras import ops

from keras_bert_d2l.block_config import BlockConfig
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.layers.base import NestedLayer, activation_function, weights_initializer
from keras_bert_d2l.layers.inputs import gather_positions
from keras_bert_d2l.layers.kernels.attention import joined_mask
from keras_bert_d2l.layers.kernels.fusion import Dropout
from keras_bert_d2l.layers.positions import RelativePositions
from keras_bert_d2l.layers.sublayers import AddNorm, GatedFFN, MultiHeadAttention, PositionWiseFFN
from keras_bert_d2l.types import Option, Shape, Tensor

SEED_STATE = "seed_generator_state"  # name that Keras gives to the state of a random generator


@keras.saving.register_keras_serializable("keras_bert_d2l")
class TransformerEncoderBlock(NestedLayer):
    """Transformer encoder block: self-attention and a feed-forward network, each with `AddNorm`.

    Source: d2l.ai, section 11.7. The argument order follows the book's PyTorch edition.

    Args:
        num_hiddens: Width of the hidden states, D.
        ffn_num_hiddens: Width of the feed-forward network.
        num_heads: Number of attention heads, N.
        dropout: Dropout rate after both sublayers.
        use_bias: Whether the attention projections use a bias.
        **kwargs: `attention_dropout`, `ffn_dropout`, `block_dropout`, `norm_first`,
            `layer_norm_epsilon`, `layer_norm`, `activation`, `initializer`, `initializer_range`,
            `gated_ffn`, `bias_free`, `skip_first_norm`, `size_per_head`, `query_act`, `key_act`,
            `value_act`, `relative_embeddings` and `own_relative_keys`, as in `BERTConfig`;
            `name`, `dtype` and `trainable`, as for every Keras layer.

    Call arguments:
        X: Hidden states, `(B, T, D)`.
        valid_lens: Number of valid tokens, int `(B,)` or `(B, T)`. `None`: all tokens are valid.
        training: Whether to apply dropout.
        attention_mask: Tokens to attend to, `(B, T)` or `(B, T, T)`, see `MultiHeadAttention`.
        return_attention: Whether to return the attention weights as well.
        positions: The tokens to return, int `(B, P)`, which saves computing the others. `None`:
            all tokens.
        relative_positions: As for `MultiHeadAttention`.

    Returns: The output `(B, T, D)`, or `(B, P, D)` with `positions`. With `return_attention`, a
        tuple of the output and the attention weights, `(B, N, T, T)` or `(B, N, P, T)`.

    Raises:
        ValueError: An option is out of range.

    Example:

    ```python
    import numpy as np
    import keras_bert_d2l as kb

    block = kb.TransformerEncoderBlock(24, 48, num_heads=8, dropout=0.5)
    X = np.ones((2, 100, 24))
    output = block(X, valid_lens=np.array([3, 2]))
    assert output.shape == (2, 100, 24)
    ```
    """

    def __init__(
        self,
        num_hiddens: int,
        ffn_num_hiddens: int,
        num_heads: int,
        dropout: float,
        use_bias: bool = True,
        **kwargs: Option,
    ) -> None:
        config, layer_options = BlockConfig.split_arguments(
            num_hiddens, ffn_num_hiddens, num_heads, dropout, use_bias, **kwargs
        )
        super().__init__(autocast=False, **layer_options)
        self.config = config
        self.attention = MultiHeadAttention(
            num_hiddens,
            num_heads,
            config.dropout if config.attention_dropout is None else config.attention_dropout,
            use_bias and not config.bias_free,
            initializer=config.initializer,
            initializer_range=config.initializer_range,
            size_per_head=config.size_per_head,
            query_act=config.query_act,
            key_act=config.key_act,
            value_act=config.value_act,
            relative_embeddings=config.relative_embeddings,
            own_relative_keys=config.own_relative_keys,
            relative_dropout=config.dropout,
            dtype=self.dtype_policy,
            name="attention",
        )
        self.addnorm1 = self._addnorm("addnorm1", has_norm=not config.skip_first_norm)
        self.ffn = (GatedFFN if config.gated_ffn else PositionWiseFFN)(
            ffn_num_hiddens,
            num_hiddens,
            activation=config.activation,
            dropout=config.ffn_dropout,
            use_bias=not config.bias_free,
            initializer=config.initializer,
            initializer_range=config.initializer_range,
            dtype=self.dtype_policy,
            name="ffn",
        )
        self.addnorm2 = self._addnorm("addnorm2")
        self.block_dropout = Dropout(config.block_dropout, dtype=self.dtype_policy)

    def call(
        self,
        X: Tensor,
        valid_lens: Tensor | None = None,
        training: bool | None = None,
        attention_mask: Tensor | None = None,
        return_attention: bool = False,
        positions: Tensor | None = None,
        relative_positions: RelativePositions | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        mask = joined_mask(ops.shape(X)[1], valid_lens, attention_mask)  # (B, 1 or T, T)
        queries = before = self.addnorm1.before(X)  # (B, T, D)
        if positions is not None:  # all tensors below except the weights are then (B, P, D)
            X, queries = (gather_positions(x, positions, "positions") for x in (X, before))
            if mask is not None and mask.shape[1] != 1:
                mask = gather_positions(mask, positions, "positions")
            if relative_positions is not None:
                relative_positions = relative_positions.at(positions)
        attended = self.attention(
            queries,
            before,
            before,
            training=training,
            attention_mask=mask,
            return_attention=return_attention,
            relative_positions=relative_positions,
        )
        if return_attention:
            attended, weights = attended
        X = self.addnorm1(X, attended, training=training)
        transformed = self.ffn(self.addnorm2.before(X), training=training)
        X = self.addnorm2(X, transformed, training=training)
        X = self.block_dropout(X, training=training)
        return (X, weights) if return_attention else X

    def _addnorm(self, name: str, has_norm: bool = True) -> AddNorm:
        return AddNorm(
            self.config.dropout,
            self.config.layer_norm_epsilon,
            layer_norm=self.config.layer_norm,
            norm_first=self.config.norm_first,
            bias_free=self.config.bias_free,
            has_norm=has_norm,
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, X_shape: Shape, valid_lens_shape: Shape | None = None) -> None:
        for layer in (self.attention, self.addnorm1, self.ffn, self.addnorm2):
            layer.build(X_shape)


@keras.saving.register_keras_serializable("keras_bert_d2l")
class NeighborConv(NestedLayer):
    """Convolution of the embeddings, which is added to the output of the first block.

    Source: microsoft/DeBERTa, `ConvLayer` of DeBERTa-v2.

    Args:
        config: The architecture, for `conv_kernel_size`.
        **kwargs: `name`, `dtype` and `trainable`, as for every Keras layer.

    Call arguments:
        X: Embeddings, `(B, T, D)`.
        Y: Output of the first block, `(B, T, D)` or, with `positions`, `(B, P, D)`.
        mask: Tokens to attend to, bool `(B, 1 or T, T)`. The others count as zeros. `None`: all.
        positions: The tokens of `Y`, int `(B, P)`. `None`: all tokens.
        training: Whether to apply dropout.

    Output shape: that of `Y`.
    """

    def __init__(self, config: BERTConfig, **kwargs: str) -> None:
        super().__init__(autocast=False, **kwargs)
        policy, sizes = self.dtype_policy, (config.num_hiddens, config.conv_kernel_size)
        draw = weights_initializer("dense", config.initializer, config.initializer_range)
        self.conv = keras.layers.Conv1D(
            *sizes, padding="same", kernel_initializer=draw, dtype=policy, name="conv"
        )
        self.activation = activation_function(config.activation)
        self.dropout = Dropout(config.dropout, dtype=policy)
        options = {"layer_norm": config.layer_norm, "dtype": policy, "name": "addnorm"}
        self.addnorm = AddNorm(0.0, config.layer_norm_epsilon, **options)

    def build(self, X_shape: Shape) -> None:
        self.conv.build(X_shape)
        self.addnorm.build(X_shape)

    def call(
        self,
        X: Tensor,
        Y: Tensor,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        if mask is not None:
            X = X * ops.cast(ops.any(mask, axis=1), X.dtype)[:, :, None]
        X = self.conv(X)
        if positions is not None:
            X = gather_positions(X, positions, "positions")
        X = self.activation(self.dropout(X, training=training))
        return self.addnorm(X, Y, training=training)


def rematerialized(
    layer: keras.layers.Layer,
    x: Tensor,
    relative_positions: RelativePositions | None = None,
    **options: Option,
) -> Tensor:
    """Return `layer(x, **options)` and keep no activations of the layer for its gradient.

    The backward pass computes them again. It starts from the same seeds, so that dropout makes the
    same decisions. `keras.remat` alone would draw new ones.

    Source: Chen et al. 2016.

    Args:
        layer: A built layer with one output.
        x: Its input.
        relative_positions: As for a block. Their bias and embeddings get a gradient.
        **options: Further arguments of its `call`, which get no gradient.
    """
    weights, others = layer.trainable_variables, layer.non_trainable_variables
    state = list(map(ops.copy, others))  # reads the variables now, not when they are used
    traced: list[list[Tensor]] = []
    trained = {name: getattr(relative_positions, name, None) for name in ("bias", "embeddings")}
    trained = {name: value for name, value in trained.items() if value is not None}

    def pure(x: Tensor, *values: Tensor) -> Tensor:
        if relative_positions is not None:
            given = dict(zip(trained, values[len(weights) :], strict=True))
            options["relative_positions"] = dataclasses.replace(relative_positions, **given)
        output, state_after = layer.stateless_call(
            list(values[: len(weights)]), state, x, **options
        )
        traced.append(state_after)
        # TensorFlow would need gradients of all outputs, and JAX returns nothing in another way.
        return (output, state_after) if keras.backend.backend() == "jax" else output

    output = keras.remat(pure)(x, *map(ops.copy, weights), *trained.values())
    output, after = output if keras.backend.backend() == "jax" else (output, traced[0])
    for variable, value in zip(others, after, strict=True):
        if variable.name == SEED_STATE:
            variable.assign(value)
    return output
