"""Masks, and attention with them."""

import numpy as np
import pytest
from keras import ops

from keras_bert_d2l import MultiHeadAttention
from keras_bert_d2l.layers.kernels.attention import (
    block_diagonal_mask,
    combine_masks,
    dot_product_attention,
    masked_softmax,
    valid_lens_mask,
)


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
    got = layer(x, x, x, np.array([5, 3, 1]))
    np.testing.assert_allclose(got, attention_in_numpy(layer, x, [5, 3, 1]), atol=1e-6)


def test_without_valid_lens_all_tokens_get_attention():
    x = np.random.default_rng(0).normal(size=(2, 4, 8)).astype("float32")
    layer = MultiHeadAttention(8, 2, 0.0)
    np.testing.assert_allclose(layer(x, x, x), layer(x, x, x, np.array([4, 4])), atol=1e-6)


def test_attention_weights_are_returned_only_on_request():
    x = np.random.default_rng(0).normal(size=(2, 4, 8)).astype("float32")
    layer = MultiHeadAttention(8, 2, 0.0)
    output, weights = layer(x, x, x, np.array([4, 2]), return_attention=True)
    assert weights.shape == (2, 2, 4, 4)
    np.testing.assert_array_equal(output, layer(x, x, x, np.array([4, 2])))


def test_a_width_that_is_not_a_multiple_of_num_heads_raises():
    with pytest.raises(ValueError, match="num_heads=4.*num_hiddens=10"):
        MultiHeadAttention(10, 4, 0.0)


def test_use_bias_false_creates_no_bias():
    layer = MultiHeadAttention(8, 2, 0.0, use_bias=False)
    layer.build((None, None, 8))
    assert [weight.name for weight in layer.weights] == ["kernel"] * 4


def test_one_length_per_query_masks_each_query_separately():
    mask = valid_lens_mask(np.array([[1, 2], [3, 0]]), 3)
    assert ops.convert_to_numpy(mask).astype(int).tolist() == [
        [[1, 0, 0], [1, 1, 0]],
        [[1, 1, 1], [0, 0, 0]],
    ]


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


def test_valid_lens_with_the_wrong_rank_raise():
    with pytest.raises(ValueError, match=r"shape \(B,\).*Received: .*\(1, 1, 1\)"):
        valid_lens_mask(np.ones((1, 1, 1)), 3)


def test_a_block_diagonal_mask_separates_examples_and_hides_padding():
    mask = block_diagonal_mask(np.array([[1, 1, 2, 0]]))
    assert ops.convert_to_numpy(mask).astype(int).tolist() == [
        [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    ]


def test_combined_masks_allow_only_keys_allowed_by_all_masks():
    keys = np.array([[1, 1, 0]])
    pairs = np.array([[[0, 1, 1], [1, 1, 1]]])
    combined = ops.convert_to_numpy(combine_masks(None, keys, pairs))
    assert combined.astype(int).tolist() == [[[0, 1, 0], [1, 1, 0]]]
    assert combine_masks(None, valid_lens_mask(None, 3)) is None
