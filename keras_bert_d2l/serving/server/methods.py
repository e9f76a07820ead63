"""Handlers for TensorFlow Serving's methods Predict, Classify and Regress.

Classify and Regress take `{"examples": [{"text": "one"}, {"text": "two"}]}` and return
`{"results": [...]}`, with one list of `[label, score]` pairs or one number per example. A
signature declares which of them it supports, and reads serialized `tf.train.Example`s.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert_d2l.checks import shown
from keras_bert_d2l.serving.protocol.interface import Arrays, Interface, find_interface, to_arrays
from keras_bert_d2l.serving.protocol.rest_json import (
    DEFAULT_SIGNATURE,
    JSONObject,
    encode,
    read_object,
    request_columns,
    response,
    to_json,
)
from keras_bert_d2l.serving.server.limits import Limits
from keras_bert_d2l.serving.server.versions import Version


def predict(version: Version, body: bytes, limits: Limits) -> JSONObject:
    """Handle a request to `:predict`.

    Args:
        version: The loaded model version.
        body: Body of the request.
        limits: Limits of the request.

    Returns: the body of the response.

    Raises:
        TooLargeError: The request exceeds a limit.
        ValueError: The request does not match the signature.
    """
    document, signature, interface = _read(version, body)
    columns, by_rows = request_columns(document, interface.inputs)
    limits.check_rows(columns, interface.inputs)
    inputs = to_arrays(columns, interface.inputs, encode)
    return response(_ask(version, signature, inputs, limits), by_rows)


def classify(version: Version, body: bytes, limits: Limits) -> JSONObject:
    """Handle a request to `:classify`, with the same arguments and exceptions as `predict`.

    Also raises `ValueError` if the signature does not support the method.
    """
    outputs = _ask_examples(version, body, limits, tf.saved_model.CLASSIFY_METHOD_NAME)
    scores = outputs.get(tf.saved_model.CLASSIFY_OUTPUT_SCORES)
    classes = outputs.get(tf.saved_model.CLASSIFY_OUTPUT_CLASSES)
    # A classifier may omit one of the two. TensorFlow Serving then writes "" or 0.
    if classes is None:
        return {"results": [[["", score] for score in row] for row in np.asarray(scores).tolist()]}
    numbers = to_json(np.zeros(classes.shape) if scores is None else scores)
    rows = zip(to_json(classes), numbers, strict=True)
    return {"results": [[list(pair) for pair in zip(*row, strict=True)] for row in rows]}


def regress(version: Version, body: bytes, limits: Limits) -> JSONObject:
    """Handle a request to `:regress`, with the same arguments and exceptions as `classify`."""
    outputs = _ask_examples(version, body, limits, tf.saved_model.REGRESS_METHOD_NAME)
    return {"results": outputs[tf.saved_model.REGRESS_OUTPUTS].ravel().tolist()}


METHODS: dict[str, Callable[[Version, bytes, Limits], JSONObject]] = {
    "predict": predict,
    "classify": classify,
    "regress": regress,
}


def _read(version: Version, body: bytes) -> tuple[JSONObject, str, Interface]:
    """Return a request, the name of the signature that it calls, and the signature's interface."""
    document = read_object(body)
    signature: Any = document.get("signature_name", "")
    if signature == "":
        signature = DEFAULT_SIGNATURE
    return document, signature, find_interface(version.interfaces, signature)


def _ask(version: Version, signature: str, inputs: Arrays, limits: Limits) -> Arrays:
    limits.check_tokens(inputs, version.max_len)
    outputs = version.ask(signature, inputs)
    limits.check_outputs(outputs)
    return outputs


def _ask_examples(version: Version, body: bytes, limits: Limits, method: str) -> Arrays:
    document, signature, interface = _read(version, body)
    if interface.method != method:
        raise ValueError(
            f"Signature {signature!r} does not support the method {method}. Received: a signature "
            f"for {interface.method or 'no method'}. Call it with `:predict`, or choose another "
            "`signature_name`."
        )
    examples = document.get("examples")
    if not isinstance(examples, list) or not examples:
        raise ValueError("`examples` must be a non-empty list of JSON objects.")
    limits.check_rows({tf.saved_model.CLASSIFY_INPUTS: examples}, interface.inputs)
    shared = _features(document.get("context", {}))
    rows = [tf.train.Features(feature={**shared, **_features(example)}) for example in examples]
    serialized = [tf.train.Example(features=row).SerializeToString() for row in rows]
    inputs = {tf.saved_model.CLASSIFY_INPUTS: np.array(serialized, object)}
    return _ask(version, signature, inputs, limits)


def _features(example: object) -> Mapping[str, tf.train.Feature]:
    if not isinstance(example, dict):
        raise ValueError(f"An example must be a JSON object. Received: {type(example).__name__}.")
    return {name: _feature(name, value) for name, value in example.items()}


def _feature(name: str, value: object) -> tf.train.Feature:
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
        raise ValueError(f"The feature {shown(name)} is invalid: {error!s:.200}.") from error
    raise ValueError(
        f"The feature {shown(name)} must be a string, an integer, a number with a decimal point, "
        "or a list of one of these."
    )
