import math

import keras
import numpy as np
import pytest

from keras_bert_d2l import TransformerEncoderBlock
from keras_bert_d2l.layers.activations import activation_function, gelu, gelu_tanh
from keras_bert_d2l.layers.transformer import AddNorm, PositionWiseFFN

POINTS = np.array([-3.0, -1.0, 0.0, 0.5, 2.0], "float32")


def test_gelu_is_x_times_the_normal_distribution_function():
    expected = [x * 0.5 * (1 + math.erf(x / math.sqrt(2))) for x in POINTS]
    np.testing.assert_allclose(gelu(keras.ops.convert_to_tensor(POINTS)), expected, atol=1e-6)


def test_gelu_tanh_is_googles_formula_and_not_the_exact_one():
    inner = np.sqrt(2 / np.pi) * (POINTS + 0.044715 * POINTS**3)
    expected = 0.5 * POINTS * (1 + np.tanh(inner))
    got = keras.ops.convert_to_numpy(gelu_tanh(keras.ops.convert_to_tensor(POINTS)))
    np.testing.assert_allclose(got, expected, atol=1e-6)
    assert np.abs(got - gelu(keras.ops.convert_to_tensor(POINTS))).max() > 1e-4


def test_an_unknown_activation_is_refused_by_name():
    with pytest.raises(ValueError, match="swish"):
        activation_function("swish")


def test_addnorm_normalises_the_sum():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 2, 3, 8)).astype("float32")
    total = x + y
    centred = total - total.mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(AddNorm(0.5)(x, y, training=False), expected, atol=1e-5)


def test_ffn_works_on_each_position_by_itself():
    ffn = PositionWiseFFN(4, 8)
    one = np.random.default_rng(0).normal(size=(1, 1, 8)).astype("float32")
    np.testing.assert_allclose(
        ffn(np.tile(one, (2, 3, 1))), np.tile(ffn(one), (2, 3, 1)), atol=1e-6
    )


def test_block_keeps_the_shape_of_the_books_example():
    block = TransformerEncoderBlock(24, 48, 8, 0.5)
    assert block(np.ones((2, 100, 24)), np.array([3, 2])).shape == (2, 100, 24)


def test_dropout_acts_in_training_alone():
    block = TransformerEncoderBlock(8, 16, 2, 0.5)
    x = np.random.default_rng(0).normal(size=(1, 3, 8)).astype("float32")
    np.testing.assert_array_equal(block(x), block(x))
    assert np.abs(block(x, training=True) - block(x)).max() > 0.01


@pytest.mark.parametrize(
    "layer",
    [
        AddNorm(0.1, 1e-5),
        PositionWiseFFN(4, 8, activation="gelu"),
        TransformerEncoderBlock(
            8, 16, 2, 0.1, False, attention_dropout=0.0, activation="gelu_tanh"
        ),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_layer_survives_its_config(layer):
    assert type(layer).from_config(layer.get_config()).get_config() == layer.get_config()


def test_a_block_with_norm_first_is_the_notebooks_formula():
    block = TransformerEncoderBlock(
        8, 16, 2, 0.0, norm_first=True, layer_norm="unbiased", layer_norm_epsilon=1e-6
    )
    X = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    block.build(X.shape)
    normal = block.addnorm1.ln
    Y = X + block.attention(normal(X), normal(X), normal(X), np.array([3, 5]))
    np.testing.assert_allclose(
        block(X, np.array([3, 5])), Y + block.ffn(block.addnorm2.ln(Y)), atol=1e-5
    )


@pytest.mark.parametrize("rate", ["ffn_dropout", "block_dropout"])
def test_each_further_dropout_acts_in_training_alone(rate):
    block = TransformerEncoderBlock(8, 16, 2, 0.0, **{rate: 0.5})
    X = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    plain = block(X)
    assert np.abs(block(X, training=True) - plain).max() > 0.1
    np.testing.assert_array_equal(block(X), plain)
    if rate == "block_dropout":  # the last thing that happens
        assert 0.2 < np.mean(block(X, training=True) == 0) < 0.8
