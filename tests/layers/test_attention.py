"""Masks, and attention with them."""

import numpy as np
import pytest
from keras import ops

from keras_bert_d2l import MultiHeadAttention
from keras_bert_d2l.layers.kernels.attention import dot_product_attention, masked_softmax
from keras_bert_d2l.layers.masks import joined_mask


def softmax(scores):
    exponents = np.exp(scores - scores.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


def attention_in_numpy(layer, x, valid_lens):
    """Compute the formula of Vaswani et al., one head at a time."""
    width = layer.num_hiddens // layer.num_heads
    q, k, v = (x @ w.kernel.numpy() + w.bias.numpy() for w in (layer.W_q, layer.W_k, layer.W_v))
    rows = []
    for row, valid in enumerate(valid_lens):
        heads = []
        for head in range(layer.num_heads):
            part = slice(head * width, (head + 1) * width)
            scores = q[row, :, part] @ k[row, :valid, part].T / np.sqrt(width)
            heads.append(softmax(scores) @ v[row, :valid, part])
        rows.append(np.concatenate(heads, axis=-1))
    return np.stack(rows) @ layer.W_o.kernel.numpy() + layer.W_o.bias.numpy()


def test_dot_product_attention_returns_weighted_values_and_their_weights():
    q = np.array([[[[0.0, 0.0], [100.0, 0.0]]]], "float32")  # one head, two queries
    k = np.array([[[[1.0, 0.0], [-1.0, 0.0], [9.0, 9.0]]]], "float32")
    v = np.array([[[[2.0, 4.0], [4.0, 8.0], [6.0, 6.0]]]], "float32")
    mask = np.array([[[[True, True, False]]]])
    output, weights = dot_product_attention(q, k, v, mask)
    np.testing.assert_allclose(weights, [[[[0.5, 0.5, 0], [1, 0, 0]]]], atol=1e-6)
    np.testing.assert_allclose(output, [[[[3, 6], [2, 4]]]], atol=1e-6)
    dropped, same = dot_product_attention(q, k, v, mask, dropout=lambda weights: 0 * weights)
    np.testing.assert_array_equal(dropped, 0 * output)
    np.testing.assert_array_equal(same, weights)


def test_attention_matches_the_formula_on_the_valid_tokens():
    x = np.random.default_rng(0).normal(size=(3, 5, 8)).astype("float32")
    layer = MultiHeadAttention(8, 2, 0.0)
    layer.build((None, None, 8))
    for lens, valid in ((np.array([5, 3, 1]), [5, 3, 1]), (None, [5, 5, 5])):
        expected = attention_in_numpy(layer, x, valid)
        np.testing.assert_allclose(layer(x, x, x, lens), expected, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_masked_entries_get_no_weight_and_a_fully_masked_row_is_finite(dtype):
    scores = ops.cast(np.array([[1.0, 2.0, 30.0], [5.0, 5.0, 5.0]]), dtype)
    mask = np.array([[True, True, False], [False, False, False]])
    weights = ops.convert_to_numpy(ops.cast(masked_softmax(scores, mask), "float32"))
    np.testing.assert_allclose(
        weights[0], [*(np.exp([1.0, 2.0]) / np.exp([1.0, 2.0]).sum()), 0.0], atol=4e-3
    )
    assert weights[0, 2] == 0
    np.testing.assert_allclose(weights[1], [1 / 3] * 3, atol=4e-3)


KEYS = np.array([[1, 1, 0]])
PAIRS = np.array([[[0, 1, 1], [1, 1, 1], [1, 0, 1]]])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"valid_lens": np.array([2.0])}, [[1, 1, 0]]),
        ({"valid_lens": np.array([[1, 2, 0]])}, [[1, 0, 0], [1, 1, 0], [0, 0, 0]]),
        ({"attention_mask": KEYS}, [[1, 1, 0]]),
        ({"attention_mask": KEYS, "is_token": KEYS[:, ::-1] > 0}, [[0, 1, 0]]),
        ({"attention_mask": PAIRS, "valid_lens": np.array([2])}, [[0, 1, 0], [1, 1, 0], [1, 0, 0]]),
        ({"example_ids": np.array([[1, 2, 0]])}, [[1, 0, 0], [0, 1, 0], [0, 0, 0]]),
        ({"example_ids": np.ones((1, 3)), "attention_mask": PAIRS}, PAIRS[0].tolist()),
    ],
)
def test_one_mask_allows_the_keys_that_all_arguments_allow(given, expected):
    mask = joined_mask(3, **given)
    assert (mask is None) is (expected is None)
    if mask is not None:
        assert ops.convert_to_numpy(mask)[0].astype(int).tolist() == expected


@pytest.mark.parametrize(("name", "shape"), [("valid_lens", (1, 1, 1)), ("attention_mask", (3,))])
def test_a_mask_of_another_rank_is_rejected(name, shape):
    with pytest.raises(ValueError, match=rf"`{name}` must.*{name}.shape=\({shape[0]},"):
        joined_mask(3, **{name: np.ones(shape)})
