import numpy as np
import pytest

from keras_bert_d2l import TransformerEncoderBlock
from keras_bert_d2l.layers.sublayers import PositionWiseFFN


def test_ffn_treats_every_position_the_same():
    ffn = PositionWiseFFN(4, 8)
    one = np.random.default_rng(0).normal(size=(1, 1, 8)).astype("float32")
    np.testing.assert_allclose(
        ffn(np.tile(one, (2, 3, 1))), np.tile(ffn(one), (2, 3, 1)), atol=1e-6
    )


def test_positions_select_the_lengths_of_their_queries():
    block, rng = TransformerEncoderBlock(8, 16, 2, 0.0), np.random.default_rng(0)
    x, lens = rng.normal(size=(2, 6, 8)).astype("float32"), rng.integers(1, 7, (2, 6))
    positions = np.array([[4, 0], [1, 5]])
    expected = np.take_along_axis(np.asarray(block(x, lens)), positions[:, :, None], 1)
    np.testing.assert_allclose(block(x, lens, positions=positions), expected, atol=1e-6)


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


@pytest.mark.parametrize("rate", ["dropout", "attention_dropout", "ffn_dropout", "block_dropout"])
def test_each_dropout_is_active_only_in_training(rate):
    block = TransformerEncoderBlock(
        8, 16, 2, **{"dropout": 0.0, "attention_dropout": 0.0, rate: 0.5}
    )
    X = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    plain, trained = block(X), block(X, training=True)
    assert np.abs(trained - plain).max() > 0.01
    np.testing.assert_array_equal(block(X), plain)
    if rate == "block_dropout":  # the last operation
        assert 0.2 < np.mean(trained == 0) < 0.8
