"""Masks, attention with them and in blocks, and its transpositions in exports."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bert_d2l.layers.kernels.attention import (
    attends_in_blocks,
    block_diagonal_mask,
    dot_product_attention,
    exported,
    joined_mask,
    local_attention,
    masked_softmax,
    plain_attention,
    transpose,
    window_mask,
)
from keras_bert_d2l.layers.sublayers import MultiHeadAttention


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


def test_a_window_has_as_many_keys_on_both_sides() -> None:
    mask = ops.convert_to_numpy(window_mask(4, 7, np.array([[0, 3]])))
    expected = [[True, True, True, False, False, False, False], [False, *[True] * 5, False]]
    assert mask.tolist() == [expected]


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("num_tokens", [2, 7, 16, 25])
@pytest.mark.parametrize("window", [2, 7, 8, 64])
def test_blocks_give_the_values_of_the_complete_scores(
    num_tokens: int, window: int, is_packed: bool
) -> None:
    random, shape = np.random.default_rng(0), (2, num_tokens, 3, 4)
    q, k, v = (random.normal(size=shape).astype("float32") for _ in "qkv")
    is_token = np.arange(num_tokens) < np.array([[num_tokens], [max(1, num_tokens - 3)]])
    example_ids = 1 + np.arange(2 * num_tokens).reshape(2, -1) // 3
    keys = is_token[:, None] & (block_diagonal_mask(example_ids) if is_packed else True)
    mask = window_mask(window, num_tokens, mask=keys)
    expected = ops.convert_to_numpy(plain_attention(q, k, v, mask)[0])
    output = ops.convert_to_numpy(local_attention(q, k, v, window=window, mask=keys))
    is_compared = is_token & np.any(ops.convert_to_numpy(mask), axis=-1)
    np.testing.assert_allclose(output[is_compared], expected[is_compared], atol=1e-6)


def test_blocks_are_used_for_long_rows_of_known_length() -> None:
    used = [attends_in_blocks(128, length, None) for length in (512, 256, None)]
    assert used == [True, False, False]


AXES = (0, 2, 1, 3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_an_export_transposes_the_same_values(dtype):
    x = tf.cast(np.random.default_rng(0).normal(size=(2, 3, 4, 5)), dtype)
    with exported():
        y = transpose(x, AXES)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, tf.transpose(x, AXES))


def test_an_exported_attention_splits_and_merges_heads_as_integers():
    attention = MultiHeadAttention(8, 2, dropout=0.0)
    attention.build((None, None, 8))

    def run(x):
        with exported():
            return attention(x, x, x)

    spec = tf.TensorSpec((None, None, 8))
    nodes = tf.function(run, autograph=False).get_concrete_function(spec).graph.as_graph_def().node
    dtypes = [node.attr["T"].type for node in nodes if node.op == "Transpose"]
    # Queries, keys, values and the output; TensorFlow merges the other one with the product.
    assert dtypes.count(tf.int32.as_datatype_enum) == 4
    assert len(dtypes) == 5
