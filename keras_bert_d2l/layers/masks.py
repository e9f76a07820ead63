"""Attention masks and the masked softmax.

B batch, T tokens (Q queries, K keys). A mask is True where a key may be attended to.
"""

import keras
from keras import ops

from keras_bert_d2l.types import Tensor


def valid_lens_mask(valid_lens: Tensor | None, num_keys: Tensor) -> Tensor | None:
    """Return the mask of the keys within the valid length.

    Args:
        valid_lens: Number of valid keys, int: one per example `(B,)`, or one per query `(B, Q)`.
            `None`: all keys are valid.
        num_keys: Number of keys, K.

    Returns: bool `(B, 1, K)` or `(B, Q, K)`, or `None` without `valid_lens`.

    Raises:
        ValueError: The rank of `valid_lens` is neither 1 nor 2.
    """
    if valid_lens is None:
        return None
    valid_lens = ops.cast(valid_lens, "int32")
    if len(valid_lens.shape) not in (1, 2):
        raise ValueError(
            "`valid_lens` must have the shape (B,), one length per example, or (B, Q), one per "
            f"query. Received: valid_lens.shape={tuple(valid_lens.shape)}."
        )
    if len(valid_lens.shape) == 1:
        valid_lens = valid_lens[:, None]
    return ops.arange(num_keys, dtype="int32") < valid_lens[:, :, None]


def block_diagonal_mask(example_ids: Tensor) -> Tensor:
    """Return the mask that limits attention to tokens of the same example in a packed row.

    Args:
        example_ids: Index of each token's example in its row, from 1, int `(B, T)`; 0 for padding.

    Returns: bool `(B, T, T)`.
    """
    example_ids = ops.cast(example_ids, "int32")
    is_same = example_ids[:, :, None] == example_ids[:, None, :]
    return ops.logical_and(is_same, (example_ids > 0)[:, None, :])


def combine_masks(*masks: Tensor | None) -> Tensor | None:
    """Combine masks with a logical AND.

    Args:
        *masks: Masks `(B, K)`, `(B, 1, K)` or `(B, Q, K)`, bool or numeric (0: masked), or `None`.

    Returns: bool `(B, 1, K)` or `(B, Q, K)`, or `None` if every mask is `None`.

    Raises:
        ValueError: The rank of a mask is neither 2 nor 3.
    """
    combined = None
    for mask in masks:
        if mask is None:
            continue
        if len(mask.shape) not in (2, 3):
            raise ValueError(
                "`attention_mask` must have the shape (B, T), one entry per key, or (B, T, T), "
                f"one per query and key. Received: attention_mask.shape={tuple(mask.shape)}."
            )
        mask = ops.cast(mask, "bool")
        mask = mask[:, None, :] if len(mask.shape) == 2 else mask
        combined = mask if combined is None else ops.logical_and(combined, mask)
    return combined


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the softmax over the last axis, with zero weight on masked keys.

    Args:
        scores: `(..., K)` in any float dtype.
        mask: bool, broadcastable to `scores`. `None`: nothing is masked.

    Returns: Weights with the shape and dtype of `scores`. They are exactly 0 where masked, unless
        all keys of a query are masked.
    """
    if mask is not None:
        # The softmax of a score this low is 0 in every dtype. The book's -1e6 would overflow in
        # float16, whose maximum is 65504.
        low = -3e4 if keras.backend.standardize_dtype(scores.dtype) == "float16" else -1e6
        scores = scores + ops.where(mask, ops.cast(0.0, scores.dtype), ops.cast(low, scores.dtype))
    return ops.softmax(scores, axis=-1)
