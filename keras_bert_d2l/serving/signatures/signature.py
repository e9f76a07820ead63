"""A signature of an exported model: its function, its inputs and a small example request."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

TEXT = tf.TensorSpec((None,), tf.string, name="text")
TEXT_B = tf.TensorSpec((None,), tf.string, name="text_b")
QUESTION = tf.TensorSpec((None,), tf.string, name="question")
CHOICES = tf.TensorSpec((None, None), tf.string, name="choices")
CONTEXT = tf.TensorSpec((None,), tf.string, name="context")

PREDICT = tf.saved_model.PREDICT_METHOD_NAME
CLASSIFY = tf.saved_model.CLASSIFY_METHOD_NAME
REGRESS = tf.saved_model.REGRESS_METHOD_NAME

Answer = dict[str, tf.Tensor]
"""The outputs of a signature by name."""

Traced = TypeVar("Traced")


class Signature(NamedTuple):
    """One function of an exported model.

    Attributes:
        function: Takes tensors and returns named tensors.
        specs: Names, dtypes and shapes of its inputs.
        example: One small array per input, for warming up a server.
        method: TensorFlow Serving method that can call it in addition to `Predict`.
    """

    function: Callable[..., Answer]
    specs: tuple[tf.TensorSpec, ...]
    example: tuple[np.ndarray, ...]
    method: str = PREDICT


class TextOptions(NamedTuple):
    """Options of the string signatures.

    Attributes:
        pairs: Whether the inputs of a classifier or a regressor are pairs of texts.
        top_k: Number of predictions per mask, or of answers per question.
        null_threshold: A `QuestionAnswerer` returns the empty string as its best answer if
            `null_score` is above this. `None`: it always returns a part of the context.
    """

    pairs: bool
    top_k: int
    null_threshold: float | None


def traced_once(
    function: Callable[..., Traced], specs: tuple[tf.TensorSpec, ...]
) -> Callable[..., Traced]:
    """Wrap a function so that it is traced and saved once, even if several signatures call it."""
    return tf.function(function, input_signature=specs, autograph=False)
