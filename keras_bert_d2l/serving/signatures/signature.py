"""A signature of an exported model: its function, its inputs and a small example request.

B: texts in a batch.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

TEXT = tf.TensorSpec((None,), tf.string, name="text")
TEXT_B = tf.TensorSpec((None,), tf.string, name="text_b")
QUESTION = tf.TensorSpec((None,), tf.string, name="question")
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


def traced_once(
    function: Callable[..., Traced], specs: tuple[tf.TensorSpec, ...]
) -> Callable[..., Traced]:
    """Wrap a function so that it is traced and saved once, even if several signatures call it."""
    return tf.function(function, input_signature=specs, autograph=False)


def text_signature(
    function: Callable[..., Answer], specs: tuple[tf.TensorSpec, ...], example: str
) -> Signature:
    """Return a signature that takes strings.

    Args:
        function: Takes one string tensor `(B,)` per spec.
        specs: The inputs.
        example: Text for each input of the example request.
    """
    return Signature(function, specs, (_bytes_array(example.encode()),) * len(specs))


def tf_example_signature(
    function: Callable[..., Answer],
    specs: tuple[tf.TensorSpec, ...],
    example: str,
    method: str = PREDICT,
) -> Signature:
    """Return a signature that reads its strings from serialized `tf.train.Example`s.

    Args:
        function: Takes one string tensor `(B,)` per spec.
        specs: The features to read, one string each.
        example: Text for each feature of the example request.
        method: TensorFlow Serving method that can call it in addition to `Predict`.
    """
    features = {spec.name: tf.io.FixedLenFeature((), tf.string) for spec in specs}

    def answer_examples(examples: tf.Tensor) -> Answer:
        parsed = tf.io.parse_example(examples, features)
        return function(*(parsed[spec.name] for spec in specs))

    # `Classify` and `Regress` require a specific name for their only input.
    name = "examples" if method == PREDICT else tf.saved_model.CLASSIFY_INPUTS
    values = tf.train.Feature(bytes_list=tf.train.BytesList(value=[example.encode()]))
    request = tf.train.Example(features=tf.train.Features(feature=dict.fromkeys(features, values)))
    return Signature(
        answer_examples,
        (tf.TensorSpec((None,), tf.string, name=name),),
        (_bytes_array(request.SerializeToString()),),
        method,
    )


def _bytes_array(value: bytes) -> np.ndarray:
    return np.array([value], object)
