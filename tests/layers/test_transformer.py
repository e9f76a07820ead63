import json

import numpy as np
import pytest

from keras_bert_d2l import MultiHeadAttention, TransformerEncoderBlock
from keras_bert_d2l.layers.feed_forward import PositionWiseFFN
from keras_bert_d2l.layers.transformer import AddNorm


def test_addnorm_normalizes_the_sum():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 2, 3, 8)).astype("float32")
    total = x + y
    centred = total - total.mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(AddNorm(0.5)(x, y, training=False), expected, atol=1e-5)


def test_ffn_treats_every_position_the_same():
    ffn = PositionWiseFFN(4, 8)
    one = np.random.default_rng(0).normal(size=(1, 1, 8)).astype("float32")
    np.testing.assert_allclose(
        ffn(np.tile(one, (2, 3, 1))), np.tile(ffn(one), (2, 3, 1)), atol=1e-6
    )


def test_a_dropout_rate_may_be_a_numpy_number():
    config = TransformerEncoderBlock(24, 48, 8, np.float32(0.5)).get_config()
    assert json.loads(json.dumps(config))["dropout"] == 0.5
    assert MultiHeadAttention(24, 8, np.float32(0.5)).dropout.rate == 0.5


def test_dropout_is_active_only_in_training():
    block = TransformerEncoderBlock(8, 16, 2, 0.5)
    x = np.random.default_rng(0).normal(size=(1, 3, 8)).astype("float32")
    np.testing.assert_array_equal(block(x), block(x))
    assert np.abs(block(x, training=True) - block(x)).max() > 0.01


def test_positions_select_the_lengths_of_their_queries():
    block, rng = TransformerEncoderBlock(8, 16, 2, 0.0), np.random.default_rng(0)
    x, lens = rng.normal(size=(2, 6, 8)).astype("float32"), rng.integers(1, 7, (2, 6))
    positions = np.array([[4, 0], [1, 5]])
    expected = np.take_along_axis(np.asarray(block(x, lens)), positions[:, :, None], 1)
    np.testing.assert_allclose(block(x, lens, positions=positions), expected, atol=1e-6)


def test_attention_weights_are_returned_only_on_request():
    block = TransformerEncoderBlock(8, 16, 2, 0.0)
    X = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    output, weights = block(X, np.array([3, 5]), return_attention=True)
    assert weights.shape == (2, 2, 5, 5)
    np.testing.assert_array_equal(output, block(X, np.array([3, 5])))


def test_an_unknown_option_is_named_in_the_error():
    with pytest.raises(ValueError, match="Unknown argument 'num_segments'"):
        TransformerEncoderBlock(8, 16, 2, 0.0, num_segments=3)
    with pytest.raises(ValueError, match="layer_norm='rms'"):
        TransformerEncoderBlock(8, 16, 2, 0.0, layer_norm="rms")


def test_norm_first_follows_the_notebooks_formula():
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
def test_ffn_and_block_dropout_are_active_only_in_training(rate):
    block = TransformerEncoderBlock(8, 16, 2, 0.0, **{rate: 0.5})
    X = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    plain = block(X)
    assert np.abs(block(X, training=True) - plain).max() > 0.1
    np.testing.assert_array_equal(block(X), plain)
    if rate == "block_dropout":  # the last operation
        assert 0.2 < np.mean(block(X, training=True) == 0) < 0.8
