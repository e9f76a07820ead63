"""Attention in blocks equals attention with the complete matrix of scores and a window mask."""

import numpy as np
import pytest
from keras import ops

from keras_bert_d2l.layers.kernels.attention import block_diagonal_mask, dot_product_attention
from keras_bert_d2l.layers.kernels.local_attention import (
    is_worthwhile,
    local_attention,
    window_mask,
)


def test_a_window_has_as_many_keys_on_both_sides() -> None:
    mask = ops.convert_to_numpy(window_mask(4, np.array([0, 3]), 7))
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
    mask = window_mask(window, np.arange(num_tokens), num_tokens) & keys
    expected, _ = dot_product_attention(
        *(ops.transpose(x, (0, 2, 1, 3)) for x in (q, k, v)), mask=mask[:, None]
    )
    expected = ops.convert_to_numpy(ops.transpose(expected, (0, 2, 1, 3)))
    output = ops.convert_to_numpy(local_attention(q, k, v, window=window, mask=keys))
    is_compared = is_token & np.any(ops.convert_to_numpy(mask), axis=-1)
    np.testing.assert_allclose(output[is_compared], expected[is_compared], atol=1e-6)


def test_blocks_are_used_for_long_rows_of_known_length() -> None:
    assert is_worthwhile(128, 512)
    assert not is_worthwhile(128, 256)
    assert not is_worthwhile(128, None)
