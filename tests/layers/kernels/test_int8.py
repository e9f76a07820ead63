"""Dense layers in 8-bit integer arithmetic."""

import keras
import numpy as np
import pytest

from keras_bert_d2l.layers.attention import MultiHeadAttention
from keras_bert_d2l.layers.kernels.dense import Dense
from keras_bert_d2l.layers.kernels.int8 import int8_arithmetic

pytestmark = pytest.mark.usefixtures("needs_int8")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 5, 64)).astype("float32")


def dense(units=48, **options):
    layer = Dense(units, bias_initializer="normal", **options)
    layer.build(X.shape)
    return layer


def in_int8(layer, *arguments):
    with int8_arithmetic({}):
        return keras.ops.convert_to_numpy(layer(*arguments))


def test_a_layer_equals_the_integer_arithmetic_of_numpy():
    layer = dense()
    kernel, bias = layer.kernel.numpy(), layer.bias.numpy()
    step = np.abs(X).max(axis=-1, keepdims=True) / 127  # one per token
    scale = np.abs(kernel).max(axis=0) / 127  # one per column
    codes, of_kernel = np.rint(X / step).astype("int64"), np.rint(kernel / scale).astype("int64")
    assert np.abs(codes).max() == np.abs(of_kernel).max() == 127
    expected = (codes @ of_kernel) * step * scale + bias
    np.testing.assert_allclose(in_int8(layer, X), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("activation", [None, "relu"])
def test_outputs_differ_from_those_of_floats_by_about_one_percent(use_bias, activation):
    layer = dense(use_bias=use_bias, activation=activation)
    expected = layer(X).numpy()
    difference = np.linalg.norm(in_int8(layer, X) - expected) / np.linalg.norm(expected)
    assert 1e-4 < difference < 0.015
    np.testing.assert_array_equal(layer(X), expected)  # it computes with floats again


@pytest.mark.parametrize("factor", [1e-20, 1.0, 1e20])
def test_the_scale_of_a_token_does_not_change_its_error_or_other_tokens(factor):
    layer = dense(use_bias=False)
    scaled = X.copy()
    scaled[0, 0] *= factor
    given, before = in_int8(layer, scaled), in_int8(layer, X)
    np.testing.assert_allclose(given[0, 0] / factor, before[0, 0], rtol=1e-2, atol=1e-2)
    np.testing.assert_array_equal(given[1:], before[1:])


def test_zeros_return_the_bias():
    layer = dense()
    expected = np.broadcast_to(layer.bias.numpy(), (3, 5, 48))
    np.testing.assert_array_equal(in_int8(layer, np.zeros_like(X)), expected)


def test_half_precision_is_kept():
    layer = dense(dtype="mixed_bfloat16")
    with int8_arithmetic({}):
        output = layer(X)
    assert output.dtype == "bfloat16"
    expected = dense_in_float(layer)
    difference = np.linalg.norm(output.numpy().astype("float32") - expected)
    assert difference < 0.02 * np.linalg.norm(expected)


def dense_in_float(layer):
    return X @ layer.kernel.value.numpy() + layer.bias.value.numpy()


def test_self_attention_multiplies_q_k_and_v_at_once():
    attention = MultiHeadAttention(64, 4, dropout=0.0)
    attention.build(X.shape)
    for layer in (attention.W_q, attention.W_k, attention.W_v):
        layer.bias.assign(RNG.normal(size=64))
    x, at_once, apart = keras.ops.convert_to_tensor(X), {}, {}
    with int8_arithmetic(at_once):
        given = attention(x, x, x)
    with int8_arithmetic(apart):
        expected = attention(x, x + 0, x + 0)
    assert (len(at_once), len(apart)) == (2, 4)
    np.testing.assert_allclose(given, expected, atol=1e-6)
