"""Tests of converting values to the arrays of a signature, as clients and servers do."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.serving.protocol.interface import to_array
from keras_bert_d2l.serving.protocol.rest_json import encode

MATRIX = tf.TensorSpec((None, 3), tf.int32, "x")


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
    array = to_array(value, MATRIX, encode)
    assert (array.dtype, array.tolist()) == (np.int32, [[1, 2, 3]])


@pytest.mark.parametrize("value", [[], [[]][:0], np.zeros((0, 3), np.int32)])
def test_empty_inputs_get_the_row_size_of_the_signature(value):
    assert to_array(value, MATRIX, encode).shape == (0, 3)


@pytest.mark.parametrize(
    "value",
    [
        [[1, 2]],
        [[]],
        [1, 2, 3],
        [[1, 2, 3], [1, 2]],
        [[1, 2, 3], 4],
        [[[1], [2], [3]]],
        [[1, 2, None]],
        [np.zeros((2, 3), int), np.zeros((2, 4), int)],
        "abc",
        {"a": 1},
        None,
    ],
)
def test_other_shapes_are_rejected(value):
    with pytest.raises(ValueError, match="`x` must have the dtype int32 and the shape"):
        to_array(value, MATRIX, encode)


def test_any_rank_is_accepted_if_the_signature_does_not_specify_one():
    spec = tf.TensorSpec(None, tf.string, "x")
    for value, shape in (("a", ()), (["a"], (1,)), ([["a", "b"]], (1, 2)), ([], (0,))):
        assert to_array(value, spec, encode).shape == shape
    with pytest.raises(ValueError, match="any shape, in lists of equal lengths"):
        to_array([["a"], "b"], spec, encode)
