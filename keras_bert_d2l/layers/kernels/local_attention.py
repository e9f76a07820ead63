"""Attention to nearby tokens, in blocks: its time grows with the window instead of the row.

B batch, T tokens, N heads, H width of a head, W half of the window, C blocks of Q = 2 W tokens.
"""

import functools
from collections.abc import Callable

import numpy as np
from keras import ops

from keras_bert_d2l.layers.kernels.attention import (
    dot_product_attention,
    is_exported,
    plain_attention,
    transpose,
)
from keras_bert_d2l.layers.masks import window_mask
from keras_bert_d2l.types import Tensor

_LEAST_BLOCKS = 4  # with fewer, computing all scores is faster


def attends_in_blocks(window: int, num_tokens: int | None, mask: Tensor | None) -> bool:
    """Return whether to use `local_attention`: for long rows, and for any rows of an export.

    Args:
        window: Width of the window, in tokens.
        num_tokens: Number of tokens per row, T. `None`: any number.
        mask: The mask of the attention.
    """
    if num_tokens is None:
        return is_exported() and (mask is None or mask.shape[1] == 1)
    return num_tokens >= _LEAST_BLOCKS * (window // 2 * 2)


def local_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    window: int,
    mask: Tensor | None = None,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Compute scaled dot-product attention in which each query sees the keys of its window.

    Every block of Q queries attends to the 2 Q keys from W before its first query to W after its
    last one. A mask excludes the keys in them that are outside the window of a query. Rows of any
    length, in an export, are computed so if they are long.

    Source: Beltagy et al. 2020 (Longformer), section 3.1; Warner et al. 2024 (ModernBERT).

    Args:
        q: Queries, `(B, T, N, H)`.
        k: Keys, `(B, T, N, H)`.
        v: Values, `(B, T, N, H)`.
        window: Width of the window, in tokens, at least 2.
        mask: Keys to attend to, bool `(B, 1, T)`, or `(B, T, T)` for a known T. `None`: all keys.
        dropout: Function to apply to the weights.

    Returns: The output, `(B, T, N, H)`.
    """
    T = ops.shape(q)[1]
    in_blocks = functools.partial(_attention_in_blocks, q, k, v, window // 2, mask, dropout)
    if isinstance(T, int):
        return in_blocks()

    def complete() -> Tensor:
        return plain_attention(q, k, v, window_mask(window, T, mask=mask), dropout)[0]

    return ops.cond(T >= _LEAST_BLOCKS * (window // 2 * 2), in_blocks, complete)


def _attention_in_blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    W: int,
    mask: Tensor | None,
    dropout: Callable[[Tensor], Tensor] | None,
) -> Tensor:
    (B, T, N, H) = ops.shape(q)
    Q = 2 * W  # queries per block
    C = -(-T // Q)
    is_padded = not isinstance(T, int) or T % Q > 0

    def padded(x: Tensor) -> Tensor:
        x = transpose(x, (0, 2, 1, 3))  # (B, N, T, H)
        return ops.pad(x, ((0, 0), (0, 0), (0, C * Q - T), (0, 0))) if is_padded else x

    def blocks(x: Tensor) -> Tensor:
        return ops.reshape(x, (B, N, C, Q, H))

    def spans(x: Tensor) -> Tensor:
        # Rolled tokens reach around the ends, where the mask excludes them. TensorFlow computes
        # gradients of slices such as `x[:, W:]` on one core, which takes several times as long.
        x = padded(x)
        halves = [blocks(ops.roll(x, shift, axis=2)) for shift in (W, -W)]
        return ops.concatenate(halves, axis=3)  # (B, N, C, 2 Q, H)

    mask = ops.ones((1, 1, T), "bool") if mask is None else mask
    in_window = np.abs(np.arange(Q)[:, None] + W - np.arange(2 * Q)) <= W  # (Q, 2 Q)
    is_seen = _mask_of_spans(mask, C, Q, C * Q - T) & in_window  # (B or 1, 1, C, Q, 2 Q)
    q, k, v = blocks(padded(q)), spans(k), spans(v)
    output, _ = dot_product_attention(q, k, v, is_seen, dropout)  # (B, N, C, Q, H)
    output = ops.reshape(output, (B, N, C * Q, H))
    output = ops.slice(output, (0, 0, 0, 0), (B, N, T, H)) if is_padded else output
    return transpose(output, (0, 2, 1, 3))


def _mask_of_spans(mask: Tensor, C: Tensor, Q: int, padding: Tensor) -> Tensor:
    """Return the mask `(B, 1 or T, T)` of each block's span, `(B, 1, C, 1 or Q, 2 Q)`."""
    of_queries = mask.shape[1] != 1
    mask = ops.pad(mask, ((0, 0), (0, padding if of_queries else 0), (Q // 2, padding + Q // 2)))
    if of_queries:
        spans = [mask[:, q : q + Q, q : q + 2 * Q] for q in range(0, C * Q, Q)]
        return ops.stack(spans, axis=1)[:, None]
    halves = [ops.reshape(x, (-1, 1, C, 1, Q)) for x in (mask[:, 0, :-Q], mask[:, 0, Q:])]
    return ops.concatenate(halves, axis=-1)
