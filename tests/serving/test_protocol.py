"""Tests of converting values to the arrays of a signature and to JSON, for clients and servers."""

import json

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.serving.protocol import (
    Spec,
    request_columns,
    response,
    to_array,
    to_arrays,
)

MATRIX = Spec((None, 3), np.dtype("int32"), "x")


@pytest.mark.parametrize(
    "value",
    [
        [[1, 2, 3]],
        ((1, 2, 3),),
        [np.array([1, 2, 3])],
        [[np.int64(1), np.uint8(2), 3]],
        np.array([[1, 2, 3]]),
        tf.constant([[1, 2, 3]]),
        [tf.constant([1, 2, 3])],
    ],
)
def test_lists_tuples_arrays_and_tensors_of_numbers_become_the_same_array(value):
    array = to_array(value, MATRIX)
    assert (array.dtype, array.tolist()) == (np.int32, [[1, 2, 3]])


@pytest.mark.parametrize("value", [[], [[]][:0], np.zeros((0, 3), np.int32)])
def test_empty_inputs_get_the_row_size_of_the_signature(value):
    assert to_array(value, MATRIX).shape == (0, 3)


@pytest.mark.parametrize(
    "value",
    [
        [[1, 2]],
        [[]],
        [1, 2, 3],
        [[1, 2, 3], [1, 2]],
        [[1, 2, 3], 4],
        [[[1], [2], [3]]],
        *([[1, 2, number]] for number in (None, 3.0, True, "3", 2**31, 10**30, float("nan"))),
        [np.zeros((2, 3), int), np.zeros((2, 4), int)],
        "abc",
        {"a": 1},
        None,
    ],
)
def test_other_shapes_and_types_are_rejected(value):
    with pytest.raises(ValueError, match="`x` must have the dtype int32 and the shape"):
        to_array(value, MATRIX)


def test_any_rank_is_accepted_if_the_signature_does_not_specify_one():
    spec = Spec(None, np.dtype(object), "x")
    for value, shape in (("a", ()), (["a"], (1,)), ([["a", "b"]], (1, 2)), ([], (0,))):
        assert to_array(value, spec).shape == shape
    with pytest.raises(ValueError, match="any shape, in lists of equal lengths"):
        to_array([["a"], "b"], spec)


def test_nan_and_infinity_are_accepted_in_both_directions():
    specs = {"x": Spec((None,), np.dtype("float32"), "x")}
    document = json.loads('{"inputs": {"x": [NaN, Infinity, -Infinity, 1]}}')
    columns, by_rows = request_columns(document, specs)
    arrays = to_arrays(columns, specs)
    np.testing.assert_array_equal(arrays["x"], np.array([np.nan, np.inf, -np.inf, 1], np.float32))
    assert json.dumps(response(arrays, by_rows)) == '{"outputs": [NaN, Infinity, -Infinity, 1.0]}'


def test_an_unknown_field_of_a_request_is_rejected():
    document = {"instances": ["a"], "signature": "embed"}
    with pytest.raises(ValueError, match="Unknown field 'signature'.* 'signature_name'"):
        request_columns(document, {})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_number_outside_the_range_is_rejected(dtype):
    spec = Spec((None,), np.dtype(dtype), "x")
    for number in (1e39, -1e300, 10**400):
        with pytest.raises(ValueError, match="Received: a number outside its range"):
            to_array([0.5, number], spec)
    assert to_array([0.5, float("inf")], spec).tolist() == [0.5, np.inf]


def test_bfloat16_becomes_plain_numbers():
    array = np.array([[1.5]], ml_dtypes.bfloat16)
    assert json.dumps(response({"x": array}, by_rows=True)) == '{"predictions": [[1.5]]}'
