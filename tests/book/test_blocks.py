"""d2l.ai, sections 11.3, 11.5 and 11.7: the encoder's parts in both argument orders."""

import keras
import numpy as np
import pytest

from keras_bert_d2l import book as d2l

X = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")  # (B, T, D)


@pytest.mark.parametrize(
    "block",
    [
        lambda: d2l.TransformerEncoderBlock(8, 16, 2, 0.5, True),
        lambda: d2l.TransformerEncoderBlock(8, 8, 8, 8, [8], 16, 2, 0.5, bias=True),
        lambda: d2l.TransformerEncoderBlock(
            num_hiddens=8, ffn_num_hiddens=16, num_heads=2, dropout=0.5, use_bias=True
        ),
        lambda: d2l.TransformerEncoderBlock(
            key_size=8,
            query_size=8,
            value_size=8,
            num_hiddens=8,
            norm_shape=8,
            ffn_num_hiddens=16,
            num_heads=2,
            dropout=0.5,
            bias=True,
        ),
    ],
)
def test_both_argument_orders_create_the_same_block(block):
    layer = block()
    assert layer(X, np.array([3, 2])).shape == (2, 5, 8)
    config = layer.config
    assert (config.num_hiddens, config.ffn_num_hiddens, config.num_heads) == (8, 16, 2)
    assert layer.addnorm1.dropout.rate == 0.5
    assert layer.attention.W_q.use_bias


def test_attention_takes_both_argument_orders_and_projections_have_no_bias_by_default():
    assert not d2l.TransformerEncoderBlock(8, 16, 2, 0.5).attention.W_q.use_bias
    assert not d2l.TransformerEncoderBlock(8, 8, 8, 8, [8], 16, 2, 0.5).attention.W_q.use_bias
    for sizes in ((8, 2), (8, 8, 8, 8, 2)):
        assert not d2l.MultiHeadAttention(*sizes, 0.5).use_bias
        layer = d2l.MultiHeadAttention(*sizes, 0.0, bias=True)
        assert layer(X, X, X, np.array([3, 2])).shape == (2, 5, 8)
        assert (layer.num_hiddens, layer.num_heads, layer.use_bias) == (8, 2, True)


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ((8, 7, 8, 8, [8]), "query_size=7"),
        ((8, 8, 8, 8, [9]), "norm_shape=9"),
        ((8, 8, 8, 8, [5, 8]), r"norm_shape=\[5, 8\]"),
    ],
)
def test_a_width_that_the_residual_connection_does_not_allow_raises(sizes, named):
    with pytest.raises(ValueError, match=named):
        d2l.TransformerEncoderBlock(*sizes, 16, 2, 0.5)


def test_add_norm_adds_then_normalizes():
    out = keras.ops.convert_to_numpy(d2l.AddNorm([8], 0.0)(X, 2 * X))
    centred = X - X.mean(-1, keepdims=True)
    expected = 3 * centred / np.sqrt(9 * X.var(-1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(out, expected, atol=1e-5)


def test_softmax_gives_zero_weight_to_entries_past_the_valid_length():
    scores = np.zeros((2, 2, 4), "float32")
    by_example = keras.ops.convert_to_numpy(d2l.masked_softmax(scores, np.array([2, 4])))
    np.testing.assert_allclose(by_example[0], [[0.5, 0.5, 0, 0]] * 2)
    np.testing.assert_allclose(by_example[1], [[0.25] * 4] * 2)
    by_query = d2l.masked_softmax(scores, np.array([[1, 3], [2, 4]]))
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(by_query)[0, 1], [1 / 3, 1 / 3, 1 / 3, 0], rtol=1e-6
    )
    everything = keras.ops.convert_to_numpy(d2l.masked_softmax(scores, None))
    np.testing.assert_allclose(everything, np.full((2, 2, 4), 0.25))
