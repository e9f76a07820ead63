"""Activations, layer normalization and initial weights."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.layers.base import (
    UnbiasedLayerNormalization,
    gelu,
    gelu_tanh,
    initialize,
    layer_normalization,
    output_initializer,
    weights_initializer,
    without_initialization,
)
from keras_bert_d2l.layers.heads import MaskLM

POINTS = np.array([-3.0, -1.0, 0.0, 0.5, 2.0], "float32")
X = np.random.default_rng(0).normal(3, 2, (2, 4, 6)).astype("float32")


def test_gelu_is_x_times_the_normal_cdf_and_gelu_tanh_googles_approximation():
    exact = [x * 0.5 * (1 + math.erf(x / math.sqrt(2))) for x in POINTS]
    inner = np.sqrt(2 / np.pi) * (POINTS + 0.044715 * POINTS**3)
    points = keras.ops.convert_to_tensor(POINTS)
    np.testing.assert_allclose(gelu(points), exact, atol=1e-6)
    np.testing.assert_allclose(gelu_tanh(points), 0.5 * POINTS * (1 + np.tanh(inner)), atol=1e-6)


def test_unbiased_norm_divides_by_the_unbiased_standard_deviation_plus_epsilon():
    layer = layer_normalization("unbiased", 0.5)
    layer.build(X.shape)
    layer.gamma.assign(np.arange(6))
    layer.beta.assign(np.ones(6))
    mean, std = X.mean(-1, keepdims=True), X.std(-1, ddof=1, keepdims=True)
    np.testing.assert_allclose(layer(X), np.arange(6) * (X - mean) / (std + 0.5) + 1, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_equal_inputs_give_zeros_and_a_finite_gradient(dtype):
    layer, x = UnbiasedLayerNormalization(1e-6, dtype=dtype), tf.fill((1, 4), 300.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.cast(layer(x), "float32")
    np.testing.assert_array_equal(y, np.zeros((1, 4)))
    assert np.isfinite(tape.gradient(y, x)).all()


def drawers():
    return [
        *(
            weights_initializer(kind, initializer, 0.02)
            for kind in ("dense", "embedding", "positions")
            for initializer in ("book", "truncated_normal")
        ),
        output_initializer(0.02),
        weights_initializer("embedding", "book", 0.02, zero_rows=2),
    ]


@pytest.mark.parametrize("deviation", [0.02, 0.5])
def test_truncated_normal_weights_are_within_two_standard_deviations(deviation):
    weights = np.asarray(weights_initializer("dense", "truncated_normal", deviation)((100, 100)))
    assert 1.95 * deviation < np.abs(weights).max() <= 2.005 * deviation
    # Truncation at two standard deviations reduces the standard deviation by 12 %.
    np.testing.assert_allclose(weights.std(), 0.88 * deviation, rtol=0.05)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_without_initialization_draws_no_weights(dtype, monkeypatch):
    def drawn(*args, **kwargs):
        raise AssertionError

    initializers = drawers()
    for name in ("truncated_normal", "uniform", "normal"):
        monkeypatch.setattr(keras.src.initializers.random_initializers.random, name, drawn)
    for initializer in initializers:
        with without_initialization():
            values = initializer((3, 4), dtype)
        assert tuple(values.shape) == (3, 4)
        assert keras.backend.standardize_dtype(values.dtype) == dtype
        with pytest.raises(AssertionError), without_initialization():
            raise AssertionError
        with pytest.raises(AssertionError):  # initialization is enabled again
            initializer((3, 4), dtype)


def test_initialize_draws_new_kernels_for_a_layer():
    head = MaskLM(5, 4)
    with without_initialization():
        head.build((None, None, 4))
    head.mlp.layers[1].gamma.assign([2.0] * 4)
    initialize(head)
    dense, norm, logits = head.mlp.layers
    assert 0.1 < np.abs(np.asarray(dense.kernel)).max() <= np.sqrt(6 / 8)
    assert 0.01 < np.abs(np.asarray(logits.kernel)).max() <= 0.0401
    np.testing.assert_array_equal(norm.gamma, [2.0] * 4)


def test_initializer_is_restored_from_its_config():
    for initializer in drawers():
        config = keras.saving.serialize_keras_object(initializer)
        again = keras.saving.deserialize_keras_object(config)
        assert keras.saving.serialize_keras_object(again) == config
        assert again((3, 4)).shape == (3, 4)
