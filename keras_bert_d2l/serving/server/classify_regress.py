"""Requests to TensorFlow Serving's methods Classify and Regress, as its REST interface has them.

`{"examples": [{"text": "one"}, {"text": "two"}]}` in, `{"results": [...]}` out: for each example a
list of pairs of label and score, or a number. A signature answers a method where it names it, and
takes serialised `tf.train.Example`s.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert_d2l.serving.protocol.rest_json import encode, read_object, signature_name, to_json
from keras_bert_d2l.serving.protocol.tensors import find_interface
from keras_bert_d2l.serving.server.versions import Version

_METHODS = {
    "classify": tf.saved_model.CLASSIFY_METHOD_NAME,
    "regress": tf.saved_model.REGRESS_METHOD_NAME,
}


def ask_method(version: Version, body: bytes, method: str) -> dict[str, Any]:
    """Answers a request to `:classify` or `:regress`.

    Args:
        version: The model.
        body: The body of the request.
        method: `"classify"` or `"regress"`.

    Returns: the body of the answer.

    Raises:
        ValueError: The request is not what the signature takes, or the signature does not answer
            the method.
    """
    document = read_object(body)
    signature = signature_name(document)
    answered = find_interface(version.interfaces, signature).method
    if answered != _METHODS[method]:
        raise ValueError(
            f"The signature {signature!r} must be one for {_METHODS[method]}. Received: one for "
            f"{answered or 'no method'}; ask it with :predict, or name another `signature_name`."
        )
    examples = document.get("examples")
    if not isinstance(examples, list) or not examples:
        raise ValueError("`examples` must be a list with objects of names and values.")
    shared = _features(document.get("context", {}))
    rows = [{**shared, **_features(example)} for example in examples]
    serialized = np.array([_example(row).SerializeToString() for row in rows], object)
    outputs = version.ask(signature, {tf.saved_model.CLASSIFY_INPUTS: serialized})
    return {"results": _results(outputs, method)}


def _results(outputs: Mapping[str, np.ndarray], method: str) -> list[Any]:
    if method == "regress":
        return outputs[tf.saved_model.REGRESS_OUTPUTS].ravel().tolist()
    scores = outputs.get(tf.saved_model.CLASSIFY_OUTPUT_SCORES)
    classes = outputs.get(tf.saved_model.CLASSIFY_OUTPUT_CLASSES)
    # A classifier may leave out one of the two; the server then says "" or 0.
    if classes is None:
        return [[["", score] for score in row] for row in np.asarray(scores).tolist()]
    numbers: Any = to_json(np.zeros(classes.shape) if scores is None else scores)
    rows = zip(to_json(classes), numbers, strict=True)
    return [[list(pair) for pair in zip(*row, strict=True)] for row in rows]


def _features(example: Any) -> dict[str, tf.train.Feature]:
    if not isinstance(example, dict):
        raise ValueError(f"An example must be an object. Received: {type(example).__name__}.")
    return {name: _feature(name, value) for name, value in example.items()}


def _feature(name: str, value: Any) -> tf.train.Feature:
    values = value if isinstance(value, list) else [value]
    kinds = {type(one) for one in values}
    try:
        if kinds <= {str, dict}:
            encoded = [encode(one) for one in values]
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=encoded))
        if kinds == {float}:
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        if kinds <= {int, bool}:
            return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    except (OverflowError, ValueError) as error:
        raise ValueError(f"The feature {name!r:.80} is out of range: {error!s:.200}.") from error
    raise ValueError(
        f"The feature {name!r:.80} must be strings, or integers, or numbers with a point, one or a "
        "list."
    )


def _example(features: Mapping[str, tf.train.Feature]) -> tf.train.Example:
    return tf.train.Example(features=tf.train.Features(feature=features))
