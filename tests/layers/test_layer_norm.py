import keras
import numpy as np
import pytest

from keras_bert_d2l.layers.variants import UnbiasedLayerNormalization, layer_normalization

X = np.random.default_rng(0).normal(3, 2, (2, 4, 6)).astype("float32")


def test_unbiased_norm_divides_by_the_unbiased_standard_deviation_plus_epsilon():
    layer = layer_normalization("unbiased", 0.5)
    layer.build(X.shape)
    layer.gamma.assign(np.arange(6))
    layer.beta.assign(np.ones(6))
    mean, std = X.mean(-1, keepdims=True), X.std(-1, ddof=1, keepdims=True)
    np.testing.assert_allclose(layer(X), np.arange(6) * (X - mean) / (std + 0.5) + 1, atol=1e-5)


def test_biased_norm_is_the_keras_layer():
    layer = layer_normalization("biased", 0.5)
    assert isinstance(layer, keras.layers.LayerNormalization)
    expected = (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 0.5)
    np.testing.assert_allclose(layer(X), expected, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_equal_inputs_give_zeros_and_a_finite_gradient(dtype):
    import tensorflow as tf

    layer, x = UnbiasedLayerNormalization(1e-6, dtype=dtype), tf.fill((1, 4), 300.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.cast(layer(x), "float32")
    np.testing.assert_array_equal(y, np.zeros((1, 4)))
    assert np.isfinite(tape.gradient(y, x)).all()


def test_layer_is_restored_from_its_config():
    layer = UnbiasedLayerNormalization(0.25, name="ln")
    assert UnbiasedLayerNormalization.from_config(layer.get_config()).epsilon == 0.25
