import numpy as np
import pytest
from keras import ops

from keras_bert_d2l.layers.masks import (
    block_diagonal_mask,
    combine_masks,
    masked_softmax,
    valid_lens_mask,
)


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
