"""The fused functions and their gradients, compared with TensorFlow's automatic differentiation."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bert_d2l.layers.kernels.dense import biased_activation
from keras_bert_d2l.layers.kernels.fusion import (
    cross_entropy,
    dropped,
    dropped_added_normalized,
    fused,
    is_fusible,
)
from keras_bert_d2l.layers.variants import gelu, gelu_tanh, unbiased_layer_normalization

SEED = np.array([7, 3], "int64")
WIDTH = 24
ADD_NORM = {"rate": 0.3, "epsilon": 1e-6}
FUNCTIONS = {
    "gelu": (biased_activation, [(3, 5, WIDTH), (WIDTH,)], {"activation": gelu}),
    "gelu_tanh": (biased_activation, [(3, 5, WIDTH), (WIDTH,)], {"activation": gelu_tanh}),
    "dropout": (dropped, [(3, 5, WIDTH), SEED], {"rate": 0.3}),
    "add_norm": (
        dropped_added_normalized,
        [(3, 5, WIDTH), (3, 5, WIDTH), (WIDTH,), (WIDTH,), SEED],
        {**ADD_NORM, "normalization": ops.layer_normalization},
    ),
    "unbiased_add_norm": (
        dropped_added_normalized,
        [(3, 5, WIDTH), (3, 5, WIDTH), (WIDTH,), (WIDTH,), SEED],
        {**ADD_NORM, "normalization": unbiased_layer_normalization},
    ),
}
TOLERANCES = {"float32": 2e-6, "bfloat16": 2**-7}  # relative to the largest value


def value_and_gradients(function, tensors, **constants):
    floats = [x for x in tensors if x.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(floats)
        value = function(*tensors, **constants)
        weights = np.random.default_rng(1).normal(size=value.shape)
        total = tf.reduce_sum(tf.cast(value, "float32") * weights.astype("float32"))
    return [value, *tape.gradient(total, floats)]


def assert_close(actual, expected, dtype):
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == other.dtype
        one, other = (tf.cast(x, "float32").numpy() for x in (one, other))
        np.testing.assert_allclose(one, other, atol=TOLERANCES[dtype] * np.abs(other).max())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_fused_function_has_the_values_and_gradients_of_the_plain_one(name, dtype):
    function, inputs, constants = FUNCTIONS[name]
    rng = np.random.default_rng(0)
    tensors = [
        tf.constant(x) if isinstance(x, np.ndarray) else tf.cast(rng.normal(size=x), dtype)
        for x in inputs
    ]
    actual = value_and_gradients(fused(function), tensors, **constants)
    assert_close(actual, value_and_gradients(function, tensors, **constants), dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_fused_cross_entropy_has_the_values_and_gradients_of_the_plain_one(
    dtype, fuse_small_tensors
):
    rng = np.random.default_rng(0)
    logits = tf.cast(rng.normal(size=(4, 3, 50)) * 5, dtype)
    labels = rng.integers(0, 50, (4, 3)).astype("int32")

    def plain(logits):
        logits = tf.cast(logits, "float32")
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)

    actual = value_and_gradients(lambda logits: cross_entropy(labels, logits), [logits])
    assert_close(actual, value_and_gradients(plain, [logits]), dtype)


def test_large_tensors_of_known_shape_are_fused():
    assert is_fusible(tf.zeros((2**9, 2**9)))
    assert not is_fusible(tf.zeros((2**9, 2**8)))
    assert not is_fusible(keras.KerasTensor((2**9, 2**9)))

    @tf.function(input_signature=[tf.TensorSpec((None, 2**20))])
    def of_unknown_shape(x):
        return is_fusible(x)

    assert not of_unknown_shape(tf.zeros((1, 2**20)))
