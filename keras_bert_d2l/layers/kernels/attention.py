"""Scaled dot-product attention: its mask; plain, flash, and local attention.

Flash attention, on NVIDIA GPUs with JAX, computes parts that fit into fast memory, and never writes
the weights of all pairs of tokens (Dao et al. 2022). Local attention, to nearby tokens, is computed
in blocks: its time grows with the window instead of the row.

B batch, T tokens (Q queries, K keys), N heads, H width of a head; W half of the window, C blocks of
Q = 2 W tokens. A mask is True where a key may be attended to.
"""

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Iterator

import keras
import numpy as np
from keras import ops

from keras_bert_d2l.devices import AMPERE, device
from keras_bert_d2l.types import Tensor

_is_exported = contextvars.ContextVar("is exported", default=False)
_LEAST_BLOCKS = 4  # with fewer, computing all scores is faster


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


def plain_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout: Callable[[Tensor], Tensor] | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute `dot_product_attention` of heads that are not transposed.

    Args:
        q: Queries, `(B, Q, N, H)`.
        k: Keys, `(B, K, N, H)`.
        v: Values, `(B, K, N, H)`.
        mask: Keys to attend to, bool `(B, 1, K)` or `(B, Q, K)`. `None`: all keys.
        dropout: Function to apply to the weights.
        bias: Bias of the scores, `(1 or B, N, Q, K)`.

    Returns: The output `(B, Q, N, H)`, and the weights `(B, N, Q, K)` before dropout.
    """
    mask = None if mask is None else mask[:, None]  # (B, 1, Q or 1, K), shared by all heads
    q, k, v = (transpose(x, (0, 2, 1, 3)) for x in (q, k, v))  # (B, N, Q or K, H)
    output, weights = dot_product_attention(q, k, v, mask, dropout, bias)  # (B, N, Q, H)
    return transpose(output, (0, 2, 1, 3)), weights


def dot_product_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    dropout: Callable[[Tensor], Tensor] | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute scaled dot-product attention, `softmax(q k^T / sqrt(H)) v`.

    Source: Vaswani et al. 2017, equation 1.

    Args:
        q: Queries, `(B, N, Q, H)`.
        k: Keys, `(B, N, K, H)`.
        v: Values, `(B, N, K, H)`.
        mask: Keys to attend to, bool `(B, 1, 1, K)` or `(B, 1, Q, K)`. `None`: all keys.
        dropout: Function to apply to the weights, for example a `keras.layers.Dropout`.
        bias: Bias of the scores, `(1 or B, N, Q, K)`.

    Returns: The output `(B, N, Q, H)` and the attention weights `(B, N, Q, K)`, before dropout.
    """
    q = q * (1 / math.sqrt(q.shape[-1]))  # (B, N, Q, H); cheaper than scaling the scores
    rank = len(k.shape)
    k = ops.transpose(k, (*range(rank - 2), rank - 1, rank - 2))  # (B, N, H, K)
    scores = ops.matmul(q, k)  # (B, N, Q, K)
    scores = scores if bias is None else scores + bias
    weights = masked_softmax(scores, mask)  # (B, N, Q, K)
    output = ops.matmul(dropout(weights) if dropout else weights, v)  # (B, N, Q, H)
    return output, weights


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the softmax over the last axis, with zero weight on masked keys.

    Args:
        scores: `(..., K)` in any float dtype.
        mask: bool, broadcastable to `scores`, or `None` to mask nothing.

    Returns: Weights with the shape and dtype of `scores`. They are exactly 0 where masked, unless
        all keys of a query are masked.
    """
    if mask is not None:
        # The softmax of a score this low is 0 in every dtype. The book's -1e6 would overflow in
        # float16, whose maximum is 65504.
        low = -3e4 if keras.backend.standardize_dtype(scores.dtype) == "float16" else -1e6
        scores = scores + ops.where(mask, ops.cast(0.0, scores.dtype), ops.cast(low, scores.dtype))
    return ops.softmax(scores, axis=-1)


def flash_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Compute `softmax(q k^T / sqrt(H)) v` without dropout, as `plain_attention` does.

    Args:
        q: Queries, `(B, Q, N, H)`.
        k: Keys, `(B, K, N, H)`.
        v: Values, `(B, K, N, H)`.
        mask: Keys to attend to, bool `(B, 1, K)` or `(B, Q, K)`. `None`: all keys.

    Returns: `(B, Q, N, H)`.
    """
    (B, Q), K = q.shape[:2], k.shape[1]
    if mask is None and K % 2:
        mask = ops.ones((B, 1, K), "bool")
    if mask is not None:
        mask = ops.broadcast_to(mask[:, None], (B, 1, Q, K))
        mask = ops.pad(mask, ((0, 0), (0, 0), (0, Q % 2), (0, 0)), constant_values=True)
        mask = ops.pad(mask, ((0, 0), (0, 0), (0, 0), (0, K % 2)))
    # cuDNN computes the gradients of even numbers of queries and keys only.
    q, k, v = (ops.pad(x, ((0, 0), (0, x.shape[1] % 2), (0, 0), (0, 0))) for x in (q, k, v))
    return ops.dot_product_attention(q, k, v, mask=mask)[:, :Q]


def has_flash_attention(dtype: str, head_width: int) -> bool:
    """Return whether to use cuDNN's kernel for queries, keys and values of a dtype and width.

    It needs JAX, an NVIDIA GPU (Ampere or newer), half precision and heads of width 8, 16, ... 128.
    `keras.config.disable_flash_attention()` prevents it.
    """
    if keras.backend.backend() != "jax" or keras.config.is_flash_attention_enabled() is False:
        return False
    platform, capability = device()
    fits = dtype in ("bfloat16", "float16") and head_width in range(8, 129, 8)
    return fits and platform == "gpu" and capability >= AMPERE


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


@contextlib.contextmanager
def exported() -> Iterator[None]:
    """Let layers use TensorFlow operations without gradients, which an export does not need."""
    token = _is_exported.set(True)
    try:
        yield
    finally:
        _is_exported.reset(token)


def is_exported() -> bool:
    """Return whether a graph is traced for inference on unknown devices."""
    return _is_exported.get()


@contextlib.contextmanager
def computed_once() -> Iterator[None]:
    """Compute what depends on weights alone when a graph is exported, instead of with each call."""
    if not is_exported() or keras.backend.backend() != "tensorflow":
        yield
        return
    import tensorflow as tf

    with tf.init_scope():
        yield


def transpose(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return `ops.transpose(x, axes)`.

    oneDNN divides even a small transposition of floats between all threads, which then wait longer
    for each other than one thread takes. In an export, the elements are therefore called integers,
    which TensorFlow transposes itself.
    """
    if not is_exported() or ops.dtype(x) != "float32":
        return ops.transpose(x, axes)
    import tensorflow as tf

    return tf.bitcast(tf.transpose(tf.bitcast(x, tf.int32), axes), tf.float32)
