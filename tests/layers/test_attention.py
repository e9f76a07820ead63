import numpy as np
import pytest
from keras import ops

from keras_bert_d2l import MultiHeadAttention
from keras_bert_d2l.layers.masks import masked_softmax, valid_lens_mask


def softmax(scores):
    exponents = np.exp(scores - scores.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


def attention_in_numpy(layer, x, valid_lens):
    """The formula of Vaswani et al., one head at a time."""
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


def test_heads_attend_to_the_valid_tokens_by_the_formula():
    x = np.random.default_rng(0).normal(size=(3, 5, 8)).astype("float32")
    layer = MultiHeadAttention(8, 2, 0.0)
    got = layer(x, x, x, np.array([5, 3, 1]))
    np.testing.assert_allclose(got, attention_in_numpy(layer, x, [5, 3, 1]), atol=1e-6)


def test_no_lengths_means_that_all_tokens_count():
    x = np.random.default_rng(0).normal(size=(2, 4, 8)).astype("float32")
    layer = MultiHeadAttention(8, 2, 0.0)
    np.testing.assert_allclose(layer(x, x, x), layer(x, x, x, np.array([4, 4])), atol=1e-6)


def test_a_length_for_each_query_masks_each_query_by_itself():
    mask = valid_lens_mask(np.array([[1, 2], [3, 0]]), 3)
    assert ops.convert_to_numpy(mask).astype(int).tolist() == [
        [[1, 0, 0], [1, 1, 0]],
        [[1, 1, 1], [0, 0, 0]],
    ]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_masked_entries_have_no_weight_and_an_all_masked_row_is_finite(dtype):
    scores = ops.cast(np.array([[1.0, 2.0, 30.0], [5.0, 5.0, 5.0]]), dtype)
    mask = np.array([[True, True, False], [False, False, False]])
    weights = ops.convert_to_numpy(ops.cast(masked_softmax(scores, mask), "float32"))
    np.testing.assert_allclose(weights[0], [*softmax(np.array([1.0, 2.0])), 0.0], atol=4e-3)
    assert weights[0, 2] == 0
    np.testing.assert_allclose(weights[1], [1 / 3] * 3, atol=4e-3)


def test_lengths_of_a_wrong_rank_are_refused():
    with pytest.raises(ValueError, match=r"shape \(B,\).*Received: .*\(1, 1, 1\)"):
        valid_lens_mask(np.ones((1, 1, 1)), 3)


def test_a_width_that_the_heads_do_not_divide_is_refused():
    with pytest.raises(ValueError, match="num_hiddens=10, num_heads=4"):
        MultiHeadAttention(10, 4, 0.0)


def test_layer_survives_its_config():
    layer = MultiHeadAttention(8, 2, 0.3, False, initializer="truncated_normal", name="a")
    assert MultiHeadAttention.from_config(layer.get_config()).get_config() == layer.get_config()


def test_projections_without_bias_have_none():
    layer = MultiHeadAttention(8, 2, 0.0, use_bias=False)
    layer.build((None, None, 8))
    assert [weight.name for weight in layer.weights] == ["kernel"] * 4
