"""Tests with JSON values that the models of this package do not produce."""

import json

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.serving.protocol.interface import to_array, to_arrays
from keras_bert_d2l.serving.protocol.rest_json import encode, request_columns, response


def test_outputs_whose_names_end_in_bytes_are_base64():
    """TensorFlow Serving decides this by name, not by content."""
    strings = np.array([b"red", b"\xff"], object)
    answer = response({"image_bytes": strings, "text": strings}, by_rows=False)["outputs"]
    assert answer == {
        "image_bytes": [{"b64": "cmVk"}, {"b64": "/w=="}],
        "text": ["red", {"b64": "/w=="}],
    }


def test_nan_and_infinity_are_accepted_in_both_directions():
    specs = {"x": tf.TensorSpec((None,), tf.float32, "x")}
    document = json.loads('{"inputs": {"x": [NaN, Infinity, -Infinity, 1]}}')
    columns, by_rows = request_columns(document, specs)
    arrays = to_arrays(columns, specs, encode)
    np.testing.assert_array_equal(arrays["x"], np.array([np.nan, np.inf, -np.inf, 1], np.float32))
    assert json.dumps(response(arrays, by_rows)) == '{"outputs": [NaN, Infinity, -Infinity, 1.0]}'


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float16])
def test_a_number_outside_the_range_is_rejected(dtype):
    spec = tf.TensorSpec((None,), dtype, "x")
    for number in (1e39, -1e300, 10**400):
        with pytest.raises(ValueError, match="Received: a number outside its range"):
            to_array([0.5, number], spec, encode)
    assert to_array([0.5, float("inf")], spec, encode).tolist() == [0.5, np.inf]


def test_bfloat16_becomes_plain_numbers():
    array = np.array([[1.5]], ml_dtypes.bfloat16)
    assert json.dumps(response({"x": array}, by_rows=True)) == '{"predictions": [[1.5]]}'
