"""Scaled dot-product attention: plain, or cuDNN's flash attention on NVIDIA GPUs with JAX.

Flash attention computes parts that fit into fast memory, and never writes the weights of all pairs
of tokens (Dao et al. 2022).

B batch, T tokens (Q queries, K keys), N heads, H width of a head. A mask is True where a key may be
attended to.
"""

import contextlib
import contextvars
import math
from collections.abc import Callable, Iterator

import keras
from keras import ops

from keras_bert_d2l.devices import AMPERE, device
from keras_bert_d2l.types import Tensor

_is_exported = contextvars.ContextVar("is exported", default=False)


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
