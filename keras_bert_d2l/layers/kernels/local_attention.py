"""Attention to nearby tokens, in blocks: its time grows with the window instead of the row.

B batch, T tokens, N heads, H width of a head, W half of the window, C chunks of W tokens.
"""

from collections.abc import Callable

import numpy as np
from keras import ops

from keras_bert_d2l.layers.kernels.attention import dot_product_attention, transpose
from keras_bert_d2l.types import Tensor

_LEAST_CHUNKS = 8  # with fewer, computing all scores is faster


def window_mask(window: int, queries: Tensor, num_keys: Tensor) -> Tensor:
    """Return which keys are in the windows of queries.

    Args:
        window: Width of the window, in tokens: a query attends to keys up to `window // 2` away.
        queries: Positions of the queries, int `(Q,)` or `(B, Q)`.
        num_keys: Number of keys, K.

    Returns: bool `(1, Q, K)` or `(B, Q, K)`.
    """
    queries = queries[None] if len(queries.shape) == 1 else queries
    distance = ops.abs(queries[:, :, None] - ops.arange(num_keys, dtype="int32"))
    return distance <= window // 2


def is_worthwhile(window: int, num_tokens: Tensor | None) -> Tensor:
    """Return whether `local_attention` is faster for rows of this length. `None`: unknown."""
    return num_tokens is not None and num_tokens >= _LEAST_CHUNKS * (window // 2)


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

    Every chunk of W queries attends to its own and the two neighboring chunks of keys. A mask
    excludes the keys in them that are outside the window.

    Source: Beltagy et al. 2020 (Longformer), section 3.1; Warner et al. 2024 (ModernBERT).

    Args:
        q: Queries, `(B, T, N, H)`.
        k: Keys, `(B, T, N, H)`.
        v: Values, `(B, T, N, H)`.
        window: Width of the window, in tokens, at least 2.
        mask: Keys to attend to, bool `(B, 1, T)`. `None`: all keys.
        dropout: Function to apply to the weights.

    Returns: The output, `(B, T, N, H)`.
    """
    (B, T, N, H), W = ops.shape(q), window // 2
    C = -(-T // W)

    def padded(x: Tensor, before: int, after: Tensor) -> Tensor:
        return ops.pad(x, ((0, 0), (before, after), *[(0, 0)] * (len(x.shape) - 2)))

    def chunks(x: Tensor) -> Tensor:
        x = ops.reshape(padded(x, 0, C * W - T), (B * C, W, N, H))
        return transpose(x, (0, 2, 1, 3))  # (B C, N, W, H)

    def with_neighbors(x: Tensor) -> Tensor:
        rows, _, *axes = ops.shape(x)
        x = ops.reshape(padded(x, W, C * W - T + W), (rows, C + 2, W, *axes))
        return ops.concatenate([x[:, :-2], x[:, 1:-1], x[:, 2:]], axis=2)  # (B or 1, C, 3 W, ...)

    def neighboring(x: Tensor) -> Tensor:
        x = ops.reshape(with_neighbors(x), (B * C, 3 * W, N, H))
        return transpose(x, (0, 2, 1, 3))  # (B C, N, 3 W, H)

    is_key = with_neighbors(ops.ones((1, T), "bool") if mask is None else mask[:, 0])
    is_key = ops.broadcast_to(is_key, (B, C, 3 * W))
    in_window = np.abs(np.arange(W)[:, None] + W - np.arange(3 * W)) <= W  # (W, 3 W)
    is_seen = ops.reshape(is_key, (B * C, 1, 1, 3 * W)) & in_window  # (B C, 1, W, 3 W)
    q, k, v = chunks(q), neighboring(k), neighboring(v)
    output, _ = dot_product_attention(q, k, v, is_seen, dropout)  # (B C, N, W, H)
    output = ops.reshape(transpose(output, (0, 2, 1, 3)), (B, C * W, N, H))
    return output[:, :T]
