"""The mask of the attention: which keys each query attends to.

B batch, T tokens (Q queries, K keys).
"""

import functools

from keras import ops

from keras_bert_d2l.types import Tensor


def joined_mask(
    num_keys: Tensor,
    valid_lens: Tensor | None = None,
    attention_mask: Tensor | None = None,
    *,
    example_ids: Tensor | None = None,
    is_token: Tensor | None = None,
) -> Tensor | None:
    """Return one mask for the attention: keys that all arguments allow.

    Args:
        num_keys: Number of keys, K.
        valid_lens: Number of valid keys, int: one per row `(B,)`, or one per query `(B, Q)`.
        attention_mask: Keys to attend to, bool or numeric (0: masked), `(B, K)`, `(B, 1, K)` or
            `(B, Q, K)`.
        example_ids: Index of each token's example in a packed row, int `(B, T)`, see
            `block_diagonal_mask`.
        is_token: Tokens that are not padding, bool `(B, K)`.

    Returns: bool `(B, 1, K)`, the same keys for all queries, or `(B, Q, K)`. `None`: all keys.

    Raises:
        ValueError: The rank of `valid_lens` or `attention_mask` is wrong.
    """
    masks = []
    if attention_mask is not None:
        rank = len(attention_mask.shape)
        if rank not in (2, 3):
            raise ValueError(
                "`attention_mask` must have the shape (B, T), one entry per key, or (B, T, T), "
                f"one per query and key. Received: attention_mask.shape={attention_mask.shape}."
            )
        mask = ops.cast(attention_mask, "bool")
        masks.append(mask[:, None, :] if rank == 2 else mask)
    if example_ids is not None:
        masks.append(block_diagonal_mask(example_ids))
    if is_token is not None:
        masks.append(is_token[:, None, :])
    if valid_lens is not None:
        masks.append(valid_lens_mask(valid_lens, num_keys))
    return functools.reduce(ops.logical_and, masks) if masks else None


def valid_lens_mask(valid_lens: Tensor, num_keys: Tensor) -> Tensor:
    """Return the mask of the keys within the valid lengths, bool `(B, 1, K)` or `(B, Q, K)`.

    Args:
        valid_lens: int `(B,)` or `(B, Q)`.
        num_keys: Number of keys, K.
    """
    valid_lens = ops.cast(valid_lens, "int32")
    if len(valid_lens.shape) not in (1, 2):
        raise ValueError(
            "`valid_lens` must have the shape (B,), one length per row, or (B, Q), one per query. "
            f"Received: valid_lens.shape={tuple(valid_lens.shape)}."
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


def window_mask(
    window: int, num_keys: Tensor, queries: Tensor | None = None, mask: Tensor | None = None
) -> Tensor:
    """Return which keys are in the windows of queries, bool `(1 or B, Q, K)`.

    Args:
        window: Width of the window, in tokens: a query attends to keys up to `window // 2` away.
        num_keys: Number of keys, K.
        queries: Positions of the queries, int `(B, Q)`. `None`: those of the keys.
        mask: Keys that must also be allowed by this mask, bool `(B, 1, K)` or `(B, Q, K)`.
    """
    keys = ops.arange(num_keys, dtype="int32")
    queries = keys[None] if queries is None else queries
    is_near = ops.abs(queries[:, :, None] - keys) <= window // 2
    return is_near if mask is None else ops.logical_and(mask, is_near)
