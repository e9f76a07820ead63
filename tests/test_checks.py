import re

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.checks import check_range, value_errors


def check(values, ignored=None):
    check_range("numbers", values, 1, 4, "Count from 1.", ignored=ignored)


def check_in_pipeline(values, ignored=None):
    """Run the check in the graph of a dataset with unknown shapes."""
    values = tf.constant(values)
    unknown = tf.TensorSpec([None] * values.shape.rank, values.dtype)
    datasets = tf.data.Dataset.from_tensors(values).apply(
        lambda x: tf.data.Dataset.from_generator(lambda: iter(x), output_signature=unknown)
    )
    with value_errors():
        list(datasets.map(lambda x: (check(x, ignored), x)[1]))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float32", "float64"])
@pytest.mark.parametrize("values", [[[1, 4]], [[3]], np.zeros((0, 3))])
@pytest.mark.parametrize("run", [check, check_in_pipeline])
def test_integers_in_the_range_are_accepted(run, values, dtype):
    run(np.array(values, dtype))
    run(tf.constant(values, dtype))


@pytest.mark.parametrize("run", [check, check_in_pipeline])
@pytest.mark.parametrize(
    ("values", "received"),
    [
        ([1, 5], "5"),
        ([[3, -1], [7, 1]], "-1"),
        ([1.0, 2.5], "2.5"),
        ([1.0, np.nan], "nan"),
        ([1.0, -np.inf], "-inf"),
        (np.array([1, 200], "uint8"), "200"),
    ],
)
def test_the_error_names_the_argument_the_limits_and_the_first_wrong_value(run, values, received):
    message = f"`numbers` must be from 1 to 4. Received: {received}. Count from 1."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        run(np.array(values))


@pytest.mark.parametrize("run", [check, check_in_pipeline])
@pytest.mark.parametrize(
    ("values", "received"),
    [
        (["a", "b"], "strings or other objects"),
        ([[b"a"]], "strings or other objects"),
        (np.array([["1", "2"]], object), "strings or other objects"),
        (tf.constant([""]), "strings or other objects"),
        ([1 + 2j, 1], "complex numbers"),
    ],
)
def test_values_that_are_no_numbers_are_rejected(run, values, received):
    with pytest.raises(ValueError, match=rf"`numbers` must be integers. Received: {received}\."):
        run(values)


@pytest.mark.parametrize("run", [check, check_in_pipeline])
def test_one_more_value_may_be_accepted(run):
    run(np.array([-100, 4]), ignored=-100)
    with pytest.raises(ValueError, match=r"from 1 to 4, or -100. Received: -1\."):
        run(np.array([-100, -1]), ignored=-100)


def test_other_errors_are_not_converted():
    with pytest.raises(tf.errors.InvalidArgumentError), value_errors():
        tf.debugging.assert_equal(1, 2)
