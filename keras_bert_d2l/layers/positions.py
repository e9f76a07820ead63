"""Positions: sinusoidal, counted from an offset, rotary, or as a bias or window of the attention.

B batch, T tokens (Q queries, K keys), P positions, N heads, H width of a head.
"""

import dataclasses
from typing import Self

import keras
import numpy as np
from keras import ops

from keras_bert_d2l.config import MAX_DISTANCE, BERTConfig
from keras_bert_d2l.layers.base import layer_normalization, weights_initializer
from keras_bert_d2l.layers.inputs import gather_positions
from keras_bert_d2l.layers.kernels.attention import attends_in_blocks, computed_once, window_mask
from keras_bert_d2l.types import LayerOptions, Shape, Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class RelativePositions:  # not a NamedTuple, whose fields Keras would look into
    """What the attention of a block depends on because of the distances between tokens.

    Attributes:
        angles: Rotary positions: the angles of the T tokens, float32 `(1 or B, T, H / 2)`.
        bias: Bias of the scores, `(1 or B, N, Q, K)`.
        embeddings: Embeddings of distances, `(2 R, D)`, see `relative_embeddings`.
        max_distance: The field `relative_max_distance`.
        window: Size of the window, in tokens. 0: queries attend to all keys.
        queries: Positions of the queries, int `(B, P)`. `None`: all T positions.
    """

    angles: Tensor | None = None
    bias: Tensor | None = None
    embeddings: Tensor | None = None
    max_distance: int = 0
    window: int = 0
    queries: Tensor | None = None

    def at(self, positions: Tensor) -> Self:
        """Return a copy for the queries at these positions, int `(B, P)`."""
        positions, bias = ops.cast(positions, "int32"), self.bias
        if bias is not None:  # (1, N, T, K) becomes (B, N, P, K)
            bias = ops.transpose(ops.take(bias[0], positions, axis=1), (1, 0, 2, 3))
        return dataclasses.replace(self, bias=bias, queries=positions)

    def rotated(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries `(B, Q, N, H)` and keys `(B, K, N, H)`, with rotary positions if any."""
        if self.angles is None:
            return q, k
        angles = self.angles  # those of the queries
        if self.queries is not None and angles.shape[0] == 1:  # the same for all rows
            angles = ops.take(angles[0], self.queries, axis=0)
        elif self.queries is not None:
            angles = gather_positions(angles, self.queries, "positions")
        return rotated(q, angles), rotated(k, self.angles)

    def attends_in_blocks(self, num_tokens: int | None, mask: Tensor | None) -> bool:
        """Return whether the attention is `local_attention`, see there."""
        is_simple = self.queries is None and self.bias is None
        return self.window > 0 and is_simple and attends_in_blocks(self.window, num_tokens, mask)

    def mask(self, num_keys: Tensor, mask: Tensor | None) -> Tensor | None:
        """Return a mask of K keys that is limited to the window, if there is one."""
        return window_mask(self.window, num_keys, self.queries, mask) if self.window else mask


def relative_positions_of_blocks(
    config: BERTConfig, X: Tensor, position_ids: Tensor | None, relative: "RelativeBias | None"
) -> list[RelativePositions | None]:
    """Return the relative positions of each block: `None` for a BERT.

    Args:
        config: The architecture.
        X: The embeddings, `(B, T, D)`.
        position_ids: int `(B, T)`. `None`: 0, 1, 2, ...
        relative: The layer of a model with `relative_buckets` or `relative_embeddings`.
    """
    is_rotary, window = config.positions == "rotary", config.local_attention
    if isinstance(relative, RelativeEmbeddings):
        with computed_once():
            embeddings = relative.normalized()
        found = RelativePositions(None, None, embeddings, config.relative_max_distance)
        return [found] * config.num_blks
    if not (is_rotary or window or relative):
        return [None] * config.num_blks
    length = ops.shape(X)[1]
    bias = None if relative is None else relative.of_length(length)  # (1, N, T, T)
    is_local = [config.is_local(block) for block in range(config.num_blks)]
    thetas = [config.local_rope_theta if local else config.rope_theta for local in is_local]
    angles: dict[float, Tensor] = {}
    if is_rotary:
        ids = ops.arange(length, dtype="int32")[None] if position_ids is None else position_ids
        angles = {
            theta: rotary_angles(ids, theta, config.head_width) for theta in sorted({*thetas})
        }
    return [
        RelativePositions(angles.get(theta), bias, window=window if local else 0)
        for theta, local in zip(thetas, is_local, strict=True)
    ]


def sinusoidal_positions(max_len: int, num_hiddens: int) -> np.ndarray:
    """Return the sinusoidal position embedding of Vaswani et al. 2017, section 3.5.

    For every even c, column c contains the sine and column c + 1 the cosine of
    `position / 10000 ** (c / D)`.

    Args:
        max_len: Number of positions.
        num_hiddens: Width, D, an even number.

    Returns: float32 `(1, max_len, D)`.
    """
    frequencies = 10000.0 ** (-np.arange(0, num_hiddens, 2) / num_hiddens)
    angles = np.arange(max_len)[:, None] * frequencies
    pairs = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return pairs.reshape(1, max_len, num_hiddens).astype("float32")


def counted_positions(tokens: Tensor, position_ids: Tensor | None, config: BERTConfig) -> Tensor:
    """Return the row of the position embedding for each token, int32 `(B, T)`.

    For models with a `first_position_id`, such as RoBERTa.

    Source: transformers, modeling_roberta.py, `create_position_ids_from_input_ids`.

    Args:
        tokens: int32 `(B, T)`.
        position_ids: Positions that start at 0, int `(B, T)`. `None`: count the tokens that are not
            padding, so that padding on the left does not change the positions.
        config: The architecture, for `first_position_id` and `pad_id`.
    """
    if position_ids is not None:
        return ops.cast(position_ids, "int32") + config.first_position_id
    is_token = ops.cast(ops.not_equal(tokens, config.pad_id), "int32")
    return ops.cumsum(is_token, axis=1) * is_token + (config.first_position_id - 1)


def rotary_angles(position_ids: Tensor, theta: float, head_width: int) -> Tensor:
    """Return the rotation angles of the pairs of a head, float32 `(1 or B, T, H / 2)`.

    Source: Su et al. 2021 (RoFormer), section 3.2.2.

    Args:
        position_ids: int `(1 or B, T)`.
        theta: Base of the wavelengths.
        head_width: H.
    """
    return ops.cast(position_ids, "float32")[:, :, None] * rotary_frequencies(theta, head_width)


def rotary_frequencies(theta: float, head_width: int) -> np.ndarray:
    """Return the rotation angle per position of each pair of a head, float32 `(H / 2,)`."""
    return (theta ** -(np.arange(0, head_width, 2) / head_width)).astype("float32")


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Rotate the pairs (i, i + H / 2) of heads `(B, T, N, H)` by angles `(1 or B, T, H / 2)`.

    The result is computed in float32 and has the dtype of `x`.
    """
    cos, sin = ops.cos(angles)[:, :, None], ops.sin(angles)[:, :, None]
    cos, sin = ops.concatenate([cos, cos], axis=-1), ops.concatenate([-sin, sin], axis=-1)
    swapped = ops.roll(x, x.shape[-1] // 2, axis=-1)  # the halves of each head, (B, T, N, H)
    return ops.cast(ops.cast(x, "float32") * cos + ops.cast(swapped, "float32") * sin, x.dtype)


@keras.saving.register_keras_serializable("keras_bert_d2l")
class RelativeBias(keras.layers.Layer):
    """A bias of the attention scores that depends on the distance between query and key.

    Each small distance has its own row of the table; larger distances share rows.

    Source: Raffel et al. 2020 (T5), section 2.1; Song et al. 2020 (MPNet), `modeling_mpnet.py`.

    Args:
        config: The architecture, for `relative_buckets` and `num_heads`.
        **kwargs: `name`, `dtype` and `trainable`, as for every Keras layer.
    """

    def __init__(self, config: BERTConfig, **kwargs: str) -> None:
        super().__init__(**kwargs)
        self.config = config

    @property
    def table_shape(self) -> tuple[int, int]:
        """The shape of the table."""
        return self.config.relative_buckets, self.config.num_heads

    def build(self, _: Shape = ()) -> None:
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=self.table_shape,
            initializer=weights_initializer(
                "embedding", self.config.initializer, self.config.initializer_range
            ),
        )

    def of_length(self, length: Tensor) -> Tensor:
        """Return the bias of T queries and T keys, `(1, N, T, T)`."""
        buckets = relative_buckets(self.config.relative_buckets)
        table = ops.take(ops.cast(self.embeddings, self.compute_dtype), buckets, axis=0)
        places = ops.arange(length, dtype="int32")
        distances = ops.clip(places[None] - places[:, None], -MAX_DISTANCE, MAX_DISTANCE)  # (T, T)
        return ops.transpose(ops.take(table, distances + MAX_DISTANCE, axis=0), (2, 0, 1))[None]


@keras.saving.register_keras_serializable("keras_bert_d2l")
class RelativeEmbeddings(RelativeBias):
    """Embeddings of the distances between tokens, for disentangled attention.

    Source: He et al. 2021 (DeBERTa), section 3.1.

    Args:
        config: The architecture, for `relative_embeddings` and `relative_norm`.
        **kwargs: `name`, `dtype` and `trainable`, as for every Keras layer.
    """

    def __init__(self, config: BERTConfig, **kwargs: str) -> None:
        super().__init__(config, **kwargs)
        options: LayerOptions = {"dtype": self.dtype_policy, "name": "ln"}
        ln = layer_normalization(config.layer_norm, config.layer_norm_epsilon, **options)
        self.ln = ln if config.relative_norm else keras.layers.Identity()

    @property
    def table_shape(self) -> tuple[int, int]:
        """The shape of the embeddings, of distances from -K to K - 1."""
        return 2 * self.config.relative_embeddings, self.config.num_hiddens

    def build(self, _: Shape = ()) -> None:
        super().build()
        self.ln.build(self.table_shape)

    def normalized(self) -> Tensor:
        """Return the embeddings, `(2 K, D)`."""
        return self.ln(ops.cast(self.embeddings, self.compute_dtype))


def relative_layer(config: BERTConfig, policy: keras.DTypePolicy) -> RelativeBias | None:
    """Return the layer of a model with `relative_buckets` or `relative_embeddings`."""
    if config.relative_embeddings:
        return RelativeEmbeddings(config, dtype=policy, name="relative_embeddings")
    has_bias = config.relative_buckets > 0
    return RelativeBias(config, dtype=policy, name="relative_bias") if has_bias else None


def relative_buckets(num_buckets: int) -> np.ndarray:
    """Return the table row of each distance from -128 to 128, key minus query, int32 `(257,)`."""
    distances = np.arange(-MAX_DISTANCE, MAX_DISTANCE + 1)
    num, far = num_buckets // 2, np.abs(distances)  # per direction
    exact = num // 2
    share = np.log(np.maximum(far, 1) / exact) / np.log(MAX_DISTANCE / exact)
    shared = np.minimum(exact + (share * (num - exact) + 1e-6).astype("int32"), num - 1)
    return (np.where(far < exact, far, shared) + num * (distances > 0)).astype("int32")
