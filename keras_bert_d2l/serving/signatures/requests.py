"""What a request to a served model looks like: a signature's arguments, and examples of them.

B texts in a batch.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

TEXT = tf.TensorSpec((None,), tf.string, name="text")
TEXT_B = tf.TensorSpec((None,), tf.string, name="text_b")
QUESTION = tf.TensorSpec((None,), tf.string, name="question")
CONTEXT = tf.TensorSpec((None,), tf.string, name="context")
EXAMPLES = tf.TensorSpec((None,), tf.string, name="examples")

PREDICT = tf.saved_model.PREDICT_METHOD_NAME
CLASSIFY = tf.saved_model.CLASSIFY_METHOD_NAME
REGRESS = tf.saved_model.REGRESS_METHOD_NAME
# Of these methods the server takes serialised examples alone, by this name.
METHOD_EXAMPLES = tf.TensorSpec((None,), tf.string, name=tf.saved_model.CLASSIFY_INPUTS)


class Signature(NamedTuple):
    """One question to a served model.

    Attributes:
        function: Tensors in, a dictionary of named tensors out.
        specs: The names, dtypes and shapes of its arguments.
        example: An array for each argument: a small request, for the warm-up of a server.
        method: Which of TensorFlow Serving's methods answers it beside `Predict`, by the name
            that a SavedModel has for it.
    """

    function: Callable[..., dict[str, tf.Tensor]]
    specs: tuple[tf.TensorSpec, ...]
    example: tuple[np.ndarray, ...]
    method: str = PREDICT


def texts_array(*texts: str) -> np.ndarray:
    """Returns texts as the bytes `(B,)` that a request holds."""
    return np.array([text.encode() for text in texts], object)


def examples_array(features: Mapping[str, str]) -> np.ndarray:
    """Returns a batch of one serialised `tf.train.Example` with a string for each feature."""
    feature = {
        name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))
        for name, text in features.items()
    }
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    return np.array([example.SerializeToString()], object)


def parse_examples(examples: tf.Tensor, specs: Sequence[tf.TensorSpec]) -> list[tf.Tensor]:
    """Returns the strings `(B,)` that serialised examples hold under the names of `specs`."""
    features: Any = {spec.name: tf.io.FixedLenFeature((), tf.string) for spec in specs}
    parsed = tf.io.parse_example(examples, features)
    return [parsed[spec.name] for spec in specs]
