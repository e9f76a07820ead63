"""Checks of the shapes and values of a batch, and the vectors at some positions.

B batch, T tokens, P positions, D hidden width.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bert_d2l.checks import check_range, is_in_graph, shown
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.types import Tensor

_SHAPES = {  # the shapes that each feature may have
    "tokens": ("(B, T)",),
    "segments": ("(B, T)",),
    "valid_lens": ("(B,)",),
    "pred_positions": ("(B, P)",),
    "cls_positions": ("(B, E)",),
    "position_ids": ("(B, T)",),
    "example_ids": ("(B, T)",),
    "attention_mask": ("(B, T)", "(B, T, T)"),
}


def check_shapes(shapes: Mapping[str, Sequence[Tensor]], max_len: int) -> None:
    """Raise `ValueError` if the shapes of features do not match.

    Args:
        shapes: The shapes of features by name. A size may be a tensor in a TensorFlow graph. One
            that is not known yet, `None` or a symbol of JAX, is not checked.
        max_len: Maximum of T.
    """
    for name in _SHAPES:
        if name in shapes:
            _check_rank(name, shapes[name])
    shapes = {name: known_sizes(shape) for name, shape in shapes.items()}
    num_rows, length = shapes["tokens"]
    if length is not None:
        check_range("tokens.shape[1]", length, 1, max_len, "The limit is `max_len` of the model.")
    num_rows_of = ("segments", "valid_lens", "pred_positions", "cls_positions")
    wanted = {(name, 0): num_rows for name in num_rows_of}
    wanted |= {(name, 1): length for name in ("segments", "position_ids", "example_ids")}
    wanted["attention_mask", -1] = length
    for (name, axis), size in wanted.items():
        found = shapes[name][axis] if name in shapes else None
        if found is not None and size is not None:
            check_range(f"{name}.shape[{axis}]", found, size, size, "It must match `tokens`.")


def check_values(features: Mapping[str, Tensor], length: Tensor, config: BERTConfig) -> None:
    """Raise `ValueError` if an id, a length or a position is out of range for a model.

    TensorFlow would raise an error without names on a CPU, read zeros on a GPU, and accept any
    length.

    Args:
        features: Features by name.
        length: Number of tokens per row, T.
        config: The architecture of the model.
    """
    last_segment = max(config.num_segments, 2) - 1 - config.first_segment_id
    number = f"Number the texts of a row from 0. The model accepts {last_segment + 1} per row."
    limits = {
        "tokens": (0, config.vocab_size - 1, "Use the vocabulary of the model."),
        "segments": (0, last_segment, number),
        "valid_lens": (1, length, "Count the tokens before the padding."),
        "attention_mask": (0, 1, "1 marks the keys that may be attended to."),
        "position_ids": (0, config.max_len - 1, "The limit is `max_len` - 1 of the model."),
    }
    for name, (least, most, advice) in limits.items():
        if name in features:
            check_range(name, features[name], least, most, advice)
    for name in ("pred_positions", "cls_positions"):
        if name in features:
            _check_in_row(name, features[name], length)


def check_positions(name: str, positions: Tensor, X: Tensor) -> None:
    """Raise `ValueError` unless positions `(B, P)` are within the rows of X, `(B, T, ...)`."""
    _check_rank(name, positions.shape)
    size, num_rows = known_sizes((positions.shape[0], X.shape[0]))
    if None not in (size, num_rows):
        check_range(f"{name}.shape[0]", size, num_rows, num_rows, "It must match X.")
    if is_known(positions) and is_known(X) and len(X.shape) > 1:  # else, the encoder reports it
        _check_in_row(name, positions, X.shape[1])


def known_sizes(shape: Sequence[Tensor]) -> list[Tensor]:
    """Return a shape with `None` for each size that JAX does not know while it traces a model."""
    is_jax = keras.backend.backend() == "jax"
    return [None if is_jax and not isinstance(size, int) else size for size in shape]


def _check_rank(name: str, shape: Sequence[Tensor]) -> None:
    known = _SHAPES.get(name, ("(B, P)",))
    if len(shape) not in {len(one.split()) for one in known}:
        raise ValueError(
            f"`{name}` must have the shape {' or '.join(known)}. Received: "
            f"{name}.shape={tuple(shape)}."
        )


def _check_in_row(name: str, positions: Tensor, length: Tensor) -> None:
    check_range(name, positions, 0, length - 1, "Positions in a row count from 0.")


def is_known(x: Tensor) -> bool:
    """Return whether a tensor has values, which it lacks while a function is traced."""
    if keras.backend.backend() == "jax":
        import jax

        return not isinstance(x, keras.KerasTensor | jax.core.Tracer)
    return not isinstance(x, keras.KerasTensor) and not is_in_graph(x)


def is_dataset(x: object) -> bool:
    """Return whether `x` is a `tf.data.Dataset`."""
    tf = sys.modules.get("tensorflow")  # not imported for other data under another backend
    return tf is not None and isinstance(x, tf.data.Dataset)


def holds_text(x: Any) -> bool:
    """Return whether the features `x`, a list, array, tensor or dataset, are strings.

    Raises:
        ValueError: A list is empty, so the type of its elements is unknown.
    """
    if is_dataset(x):
        import tensorflow as tf

        spec = x.element_spec
        features = spec[0] if isinstance(spec, tuple) else spec
        return any(part.dtype == tf.string for part in tf.nest.flatten(features))
    if isinstance(x, Mapping):
        return any(holds_text(value) for value in x.values())
    if isinstance(x, list | tuple):
        for value in x:
            is_missing = value is None or (isinstance(value, float) and math.isnan(value))
            is_empty = isinstance(value, list | tuple) and not value  # a text may have no words
            if not is_missing and not is_empty:
                return holds_text(value)
        raise ValueError(f"There must be at least one text and one word. Received: {shown(x)}.")
    if isinstance(x, str | bytes):
        return True
    if isinstance(x, np.ndarray):
        return x.dtype.kind in "US" or (x.dtype == object and holds_text(x.tolist()))
    return str(getattr(x, "dtype", "")) in ("string", "<dtype: 'string'>")


def gather_positions(X: Tensor, positions: Tensor, name: str) -> Tensor:
    """Return the vectors at the given positions.

    Args:
        X: `(B, T, D)`.
        positions: int `(B, P)`, each in [0, T).
        name: Name of the argument `positions`, for messages.

    Returns: `(B, P, D)`.
    """
    check_positions(name, positions, X)
    positions = ops.cast(positions, "int32")
    if keras.backend.backend() == "tensorflow":  # six times faster than `take_along_axis`
        import tensorflow as tf

        return tf.gather_nd(X, positions[:, :, None], batch_dims=1)
    batch, length, width = ops.shape(X)
    row_starts = ops.arange(batch, dtype="int32")[:, None] * length
    return ops.take(ops.reshape(X, (-1, width)), positions + row_starts, axis=0)
