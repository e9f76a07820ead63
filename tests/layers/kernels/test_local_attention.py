"""Attention in blocks equals attention with the complete matrix of scores and a window mask."""

import numpy as np
import pytest
from keras import ops

from keras_bert_d2l.layers.kernels.attention import plain_attention
from keras_bert_d2l.layers.kernels.local_attention import attends_in_blocks, local_attention
from keras_bert_d2l.layers.masks import block_diagonal_mask, window_mask


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
