"""d2l.ai, sections 11.3, 11.5 and 11.7: the encoder's parts in both argument orders."""

import keras
import numpy as np
import pytest

from keras_bert_d2l import book as d2l

X = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")  # (B, T, D)
SHORT = {"num_hiddens": 8, "ffn_num_hiddens": 16, "num_heads": 2, "dropout": 0.5}
LONG = {"key_size": 8, "query_size": 8, "value_size": 8, "norm_shape": 8, **SHORT}


@pytest.mark.parametrize(
    ("sizes", "options", "name"),
    [
        ((8, 16, 2, 0.5), {}, "use_bias"),
        ((8, 8, 8, 8, [8], 16, 2, 0.5), {}, "bias"),
        ((), SHORT, "use_bias"),
        ((), LONG, "bias"),
    ],
)
def test_both_argument_orders_create_the_same_block_without_bias_by_default(sizes, options, name):
    layer = d2l.TransformerEncoderBlock(*sizes, **options, **{name: True})
    assert layer(X, np.array([3, 2])).shape == (2, 5, 8)
    config = layer.config
    assert (config.num_hiddens, config.ffn_num_hiddens, config.num_heads) == (8, 16, 2)
    assert (layer.addnorm1.dropout.rate, layer.attention.W_q.use_bias) == (0.5, True)
    assert not d2l.TransformerEncoderBlock(*sizes, **options).attention.W_q.use_bias


@pytest.mark.parametrize("sizes", [(8, 2), (8, 8, 8, 8, 2)])
def test_attention_takes_both_argument_orders(sizes):
    assert not d2l.MultiHeadAttention(*sizes, 0.5).use_bias
    layer = d2l.MultiHeadAttention(*sizes, 0.0, bias=True)
    assert layer(X, X, X, np.array([3, 2])).shape == (2, 5, 8)
    assert (layer.num_hiddens, layer.num_heads, layer.use_bias) == (8, 2, True)


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ((8, 7, 8, 8, [8]), "query_size=7"),
        ((8, 8, 8, 8, [9]), "norm_shape=9"),
        ((8, 8, 8, 8, [5, 8]), r"the width of the last axis. Received: norm_shape=\[5, 8\]"),
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


HALF, ALL = [0.5, 0.5, 0, 0], [0.25] * 4


@pytest.mark.parametrize(
    ("valid_lens", "expected"),
    [
        (np.array([2, 4]), [[HALF, HALF], [ALL, ALL]]),
        (np.array([[2, 4], [4, 2]]), [[HALF, ALL], [ALL, HALF]]),
        (None, [[ALL, ALL], [ALL, ALL]]),
    ],
)
def test_softmax_gives_zero_weight_to_entries_past_the_valid_length(valid_lens, expected):
    found = d2l.masked_softmax(np.zeros((2, 2, 4), "float32"), valid_lens)
    np.testing.assert_allclose(found, expected)
