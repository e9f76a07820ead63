"""Pooling of token vectors into the vector of a text, and the steps that follow it.

B batch, T tokens, D hidden width, E width of the vector of a text.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, cast, get_args

import keras
from keras import ops

from keras_bert_d2l.checks import check_bool, check_choice, check_integer, wrong
from keras_bert_d2l.layers.base import NestedLayer, gelu
from keras_bert_d2l.layers.inputs import gather_positions
from keras_bert_d2l.layers.kernels.fusion import Dense
from keras_bert_d2l.types import LayerOptions, Shape, Tensor

PoolingKind: TypeAlias = Literal["cls", "mean", "max", "mean_sqrt_len", "weighted_mean", "last"]
POOLINGS: tuple[PoolingKind, ...] = get_args(PoolingKind)
Similarity: TypeAlias = Literal["cosine", "dot", "euclidean", "manhattan"]
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "linear": keras.activations.linear,
    "tanh": ops.tanh,
    "gelu": gelu,
    "relu": ops.relu,
    "silu": ops.silu,
    "sigmoid": ops.sigmoid,
}
_LOWEST = -3e38  # finite in float32 and bfloat16, minus infinity in float16


class DenseStep(TypedDict):
    """A dense layer after the pooling: its width, its activation, and whether it has a bias."""

    units: int
    activation: str
    use_bias: bool


Step: TypeAlias = Literal["normalize"] | DenseStep


@keras.saving.register_keras_serializable("keras_bert_d2l")
class Pooling(NestedLayer):
    """Pooling of the token vectors of each text into one vector, ignoring padding.

    Source: Reimers and Gurevych 2019 (Sentence-BERT), section 3; `Pooling`, `Dense` and
    `Normalize` of sentence-transformers 6.2.

    Args:
        pooling: `"cls"`, the first token; `"last"`, the last one; `"mean"` or `"max"`, over all
            tokens including special ones; `"mean_sqrt_len"`, their sum divided by the square root
            of their number; `"weighted_mean"`, which weights tokens by their position, from 1. Or
            several of these, whose vectors are concatenated.
        normalize: Whether to scale the vectors to length 1 in the end.
        steps: What follows the pooling before that; see `TextEmbedder`.
        include_special: Whether the first token and the last one, `[CLS]` and `[SEP]`, count.
        **kwargs: `name`, `dtype` and `trainable`, as for every Keras layer.

    Call arguments:
        X: Encoded tokens, `(B, T, D)`.
        is_token: Non-padding tokens, bool `(B, T)`. `None`: all tokens.
        prompt_lens: Number of first tokens in each row that do not count, int `(B,)`. `None`: 0.

    Output shape: `(B, E)`; without dense steps, E is D times the number of poolings.

    Raises:
        ValueError: `pooling` or a step is unknown.
    """

    def __init__(
        self,
        pooling: PoolingKind | Sequence[PoolingKind] = "mean",
        *,
        normalize: bool = True,
        steps: Sequence[Step] = (),
        include_special: bool = True,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.pooling = checked_pooling(pooling)
        self.steps = checked_steps(steps)
        self.normalize, self.include_special = normalize, include_special
        self.layers = [
            None if isinstance(step, str) else _layer(step, f"step_{number}", self.dtype_policy)
            for number, step in enumerate(self.steps)
        ]

    @property
    def kinds(self) -> tuple[PoolingKind, ...]:
        """The poolings whose vectors are concatenated."""
        return (self.pooling,) if isinstance(self.pooling, str) else self.pooling

    def width(self, num_hiddens: int) -> int:
        """Return the width of the vectors for token vectors of a width."""
        widths = [step["units"] for step in self.steps if not isinstance(step, str)]
        return widths[-1] if widths else num_hiddens * len(self.kinds)

    def build(
        self,
        X_shape: Shape,
        is_token_shape: Shape | None = None,
        prompt_lens_shape: Shape | None = None,
    ) -> None:
        """Create the weights of the steps. Keras records the shapes, and `summary` reads them."""
        width = len(self.kinds) * int(X_shape[-1] or 0)
        for layer in filter(None, self.layers):
            layer.build((None, width))
            width = layer.units

    # Not named `mask`, which Keras would fill in by itself if it is `None`.
    def call(
        self, X: Tensor, is_token: Tensor | None = None, prompt_lens: Tensor | None = None
    ) -> Tensor:
        X = ops.cast(X, self.compute_dtype)
        is_token = ops.ones(ops.shape(X)[:2], "bool") if is_token is None else is_token
        # The position of each token that counts, from 1, and 0 for all others.
        places = ops.cast(is_token, "int32")
        if "weighted_mean" in self.kinds or prompt_lens is not None or not self.include_special:
            places = ops.cumsum(places, axis=1) * places
        if not self.include_special:
            last = ops.max(places, axis=1, keepdims=True)
            places = ops.where((places > 1) & (places < last), places, 0)
        if prompt_lens is not None:
            places = ops.where(places > prompt_lens[:, None], places, 0)
        vectors = [pooled(X, places, kind) for kind in self.kinds]
        Y = ops.concatenate(vectors, axis=-1) if vectors[1:] else vectors[0]
        for layer in self.layers:
            Y = unit(Y) if layer is None else layer(Y)
        return unit(Y) if self.normalize else Y


def pooled(X: Tensor, places: Tensor, kind: PoolingKind) -> Tensor:
    """Return the pooling `(B, D)` of the vectors `(B, T, D)` whose places are not 0.

    The places, int `(B, T)`, are the weights of `"weighted_mean"`.
    """
    is_counted = places > 0
    if kind == "cls":  # at position 0, unless rows are padded on the left
        first = ops.argmax(ops.cast(is_counted, "int32"), axis=1)
        return gather_positions(X, first[:, None], "is_token")[:, 0]
    counted = is_counted[:, :, None]
    if kind == "last":
        from_the_end = ops.argmax(ops.flip(ops.cast(is_counted, "int32"), axis=1), axis=1)
        last = ops.shape(X)[1] - 1 - from_the_end
        vectors = gather_positions(X, last[:, None], "is_token")[:, 0]
        return vectors * ops.cast(ops.any(is_counted, axis=1, keepdims=True), X.dtype)
    if kind == "max":
        X = ops.where(counted, X, ops.full_like(X, _LOWEST))
        return ops.max(X, axis=1, initial=_LOWEST)  # `initial` allows an empty batch
    weights = ops.cast(places[:, :, None] if kind == "weighted_mean" else counted, X.dtype)
    total = ops.sum(weights, axis=1)
    total = ops.sqrt(total) if kind == "mean_sqrt_len" else total
    # A text without tokens gets the zero vector.
    return ops.divide_no_nan(ops.sum(X * weights, axis=1), total)


def unit(vectors: Tensor) -> Tensor:
    """Scale vectors, on the last axis, to length 1."""
    length = ops.sqrt(ops.sum(ops.square(vectors), axis=-1, keepdims=True))
    return vectors / ops.maximum(length, 1e-12)


def checked_pooling(
    pooling: PoolingKind | Sequence[PoolingKind],
) -> PoolingKind | tuple[PoolingKind, ...]:
    """Return one pooling, or a tuple of several different ones; raise `ValueError` for others."""
    several = tuple(pooling) if isinstance(pooling, list | tuple) else ()
    kinds = tuple(check_choice("pooling", kind, POOLINGS) for kind in several or (pooling,))
    return kinds if kinds[1:] else kinds[0]


def checked_steps(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps after a pooling as a tuple; raise `ValueError` for unknown ones."""
    if not isinstance(steps, list | tuple):
        raise wrong("steps", "a list of steps", steps)
    return tuple(_checked_step(step) for step in steps)


def _checked_step(step: Step) -> Step:
    if not isinstance(step, Mapping):
        return check_choice("steps", step, ("normalize",))
    found: Any = {"activation": "linear", "use_bias": True, **step}
    if found.keys() != DenseStep.__annotations__.keys():
        raise wrong("steps", f"dense steps with the keys {(*DenseStep.__annotations__,)}", step)
    check_integer("units", found["units"], 1)
    check_choice("activation", found["activation"], tuple(ACTIVATIONS))
    check_bool("use_bias", found["use_bias"])
    return cast(DenseStep, found)


def _layer(step: DenseStep, name: str, policy: keras.DTypePolicy) -> keras.layers.Layer:
    activation = ACTIVATIONS[step["activation"]]
    use_bias = step["use_bias"]
    return Dense(step["units"], activation=activation, use_bias=use_bias, dtype=policy, name=name)
