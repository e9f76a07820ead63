import math

import keras
import numpy as np
import pytest

from keras_bert_d2l.layers.variants import activation_function, gelu, gelu_tanh

POINTS = np.array([-3.0, -1.0, 0.0, 0.5, 2.0], "float32")


def test_gelu_is_x_times_the_normal_cdf():
    expected = [x * 0.5 * (1 + math.erf(x / math.sqrt(2))) for x in POINTS]
    np.testing.assert_allclose(gelu(keras.ops.convert_to_tensor(POINTS)), expected, atol=1e-6)


def test_gelu_tanh_matches_googles_approximation_and_differs_from_the_exact_gelu():
    inner = np.sqrt(2 / np.pi) * (POINTS + 0.044715 * POINTS**3)
    expected = 0.5 * POINTS * (1 + np.tanh(inner))
    got = keras.ops.convert_to_numpy(gelu_tanh(keras.ops.convert_to_tensor(POINTS)))
    np.testing.assert_allclose(got, expected, atol=1e-6)
    assert np.abs(got - gelu(keras.ops.convert_to_tensor(POINTS))).max() > 1e-4


def test_an_unknown_activation_is_named_in_the_error():
    with pytest.raises(ValueError, match="swish"):
        activation_function("swish")
