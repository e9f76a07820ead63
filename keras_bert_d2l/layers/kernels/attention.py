"""Attention with masks: plain, or cuDNN's flash attention on NVIDIA GPUs with JAX.

Flash attention computes parts that fit into fast memory, and never writes the weights of all pairs
of tokens (Dao et al. 2022).

B batch, T tokens (Q queries, K keys), N heads, H width of a head. A mask is True where a key may be
attended to.
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

_DTYPES = ("bfloat16", "float16")
_WIDEST_HEAD = 128
_KERNEL = "cudnn"  # the value of `implementation` in `jax.nn.dot_product_attention`
_TOLERANCE = 2e-2  # of bfloat16

_is_exported = contextvars.ContextVar("is exported", default=False)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    valid_lens: Tensor | None,
    mask: Tensor | None,
    dropout: Callable[[Tensor], Tensor] | None,
    *,
    bias: Tensor | None = None,
    return_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """Compute `softmax(q k^T / sqrt(H)) v` in the fastest way that this machine has.

    Args:
        q: Queries, `(B, Q, N, H)`.
        k: Keys, `(B, K, N, H)`.
        v: Values, `(B, K, N, H)`.
        valid_lens: Number of valid keys, int `(B,)` or `(B, Q)`. `None`: all keys.
        mask: Keys to attend to, bool or numeric, `(B, K)`, `(B, 1, K)` or `(B, Q, K)`. `None`: all
            keys.
        dropout: Function to apply to the weights.
        bias: Bias of the scores, `(1 or B, N, Q, K)`.
        return_weights: Whether to return the weights as well.

    Returns: The output `(B, Q, N, H)`, and the weights `(B, N, Q, K)` before dropout, or `None`.
    """
    lengths, mask = valid_lens, combine_masks(mask)
    if mask is not None or (lengths is not None and len(lengths.shape) > 1):
        lengths, mask = None, combine_masks(valid_lens_mask(lengths, ops.shape(k)[1]), mask)
    dtype = keras.backend.standardize_dtype(q.dtype)
    is_plain = dropout is None and bias is None and not return_weights
    if is_plain and obstacle(dtype, q.shape[-1]) is None:
        return flash_attention(q, k, v, lengths, mask), None
    mask = combine_masks(valid_lens_mask(lengths, ops.shape(k)[1]), mask)
    mask = None if mask is None else mask[:, None]  # (B, 1, Q or 1, K), shared by all heads
    q, k, v = (transpose(x, (0, 2, 1, 3)) for x in (q, k, v))  # (B, N, Q or K, H)
    output, weights = dot_product_attention(q, k, v, mask, dropout, bias)  # (B, N, Q, H)
    return transpose(output, (0, 2, 1, 3)), weights if return_weights else None


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


def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None, mask: Tensor | None
) -> Tensor:
    """Compute `softmax(q k^T / sqrt(H)) v` without dropout.

    Args:
        q: Queries, `(B, Q, N, H)`.
        k: Keys, `(B, K, N, H)`.
        v: Values, `(B, K, N, H)`.
        lengths: Number of valid keys in each row, `(B,)`. `None`: all keys.
        mask: Keys to attend to, bool `(B, 1, K)` or `(B, Q, K)`. `None`: all keys.

    Returns: `(B, Q, N, H)`.
    """
    return _attention(q, k, v, lengths, mask, kernel=_KERNEL)


def _attention(
    q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None, mask: Tensor | None, *, kernel: str
) -> Tensor:
    import jax
    import jax.numpy as jnp

    (B, Q), K = q.shape[:2], k.shape[1]
    if lengths is None and mask is None and K % 2:
        lengths = jnp.full(B, K)
    if lengths is not None:  # without any key, the softmax would divide 0 by 0
        lengths = jnp.maximum(jnp.asarray(lengths).astype("int32"), 1)
    if mask is not None:
        mask = jnp.broadcast_to(mask[:, None], (B, 1, Q, K))
        mask = jnp.pad(mask, ((0, 0), (0, 0), (0, Q % 2), (0, 0)), constant_values=True)
        mask = jnp.pad(mask, ((0, 0), (0, 0), (0, 0), (0, K % 2)))
    # cuDNN computes the gradients of even numbers of queries and keys only.
    q, k, v = (jnp.pad(x, ((0, 0), (0, x.shape[1] % 2), (0, 0), (0, 0))) for x in (q, k, v))
    return jax.nn.dot_product_attention(
        q, k, v, mask=mask, key_value_seq_lengths=lengths, implementation=kernel
    )[:, :Q]


def obstacle(dtype: str, head_width: int) -> str | None:
    """Return why flash attention cannot be used on this machine, or `None` if it can.

    The last condition is a trial of the kernel on a small batch, once per process.

    Args:
        dtype: The dtype of queries, keys and values.
        head_width: The width of a head, H.
    """
    if keras.backend.backend() != "jax" or not _is_new_gpu():
        return "flash attention requires the JAX backend and an NVIDIA GPU, Ampere or newer"
    if keras.config.is_flash_attention_enabled() is False:
        return "keras.config.disable_flash_attention() was called"
    if dtype not in _DTYPES:
        return f"flash attention requires bfloat16 or float16 instead of {dtype}"
    if head_width % 8 or head_width > _WIDEST_HEAD:
        return f"flash attention requires heads of width 8, 16, ... 128 instead of {head_width}"
    return _failure(dtype, head_width)


def _is_new_gpu() -> bool:
    platform, capability = device()
    return platform == "gpu" and capability >= AMPERE


@functools.cache
def _failure(dtype: str, head_width: int) -> str | None:
    """Try the kernel on a small batch, and return what is wrong with it, if anything."""
    import jax
    import jax.numpy as jnp

    random, shape = np.random.default_rng(0), (2, 64, 2, head_width)
    numbers = [random.normal(size=shape).astype("float32") for _ in "qkv"]
    numbers[0] = numbers[0][:, :21]  # the last block reads an odd number of queries
    lengths = np.array([64, 40], "int32")
    mask = np.broadcast_to(np.arange(64) < lengths[:, None, None], (2, 21, 64))

    @functools.partial(jax.jit, static_argnums=(0, 1))
    def results(kernel: str, dtype: str, *lengths_and_mask: Tensor) -> list[Tensor]:
        def loss(*inputs: Tensor) -> tuple[Tensor, Tensor]:
            output = _attention(*inputs, *lengths_and_mask, kernel=kernel).astype("float32")
            return jnp.sum(jnp.sin(output)), output

        inputs = [jnp.asarray(x, dtype) for x in numbers]
        gradients, output = jax.grad(loss, argnums=(0, 1, 2), has_aux=True)(*inputs)
        return [output, *gradients]

    try:
        with jax.ensure_compile_time_eval():  # the caller may be traced
            for options in ((lengths, None), (None, mask)):
                found = results(_KERNEL, dtype, *options)
                expected = results("xla", "float32", *options)
                for ours, theirs in zip(found, expected, strict=True):
                    error = np.abs(np.asarray(ours, "float32") - np.asarray(theirs)).max()
                    if not error <= _TOLERANCE * np.abs(theirs).max():
                        return f"flash attention was wrong by {error:.2g} in a trial"
    except Exception as error:  # cuDNN and XLA raise many types of exceptions
        [reason, *_] = str(error).splitlines() or [type(error).__name__]
        return f"flash attention failed in a trial: {reason:.200}"
    return None


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
