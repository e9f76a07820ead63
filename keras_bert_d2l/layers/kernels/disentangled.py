"""Disentangled attention: scores that depend on a token and on the distance to another token.

The products of the queries with the embeddings of all distances are computed for blocks of queries,
so that they are little larger than the scores. A row of the products becomes a row of the scores by
a shift, because the distance to a key changes by one from query to query: shifts copy memory, and
take a fraction of the time of a gather and its gradient.

B batch, T tokens (Q queries), N heads, H width of a head, K distances per direction, R rows of
distances in use; C blocks of b queries, whose distances to all keys have T + b - 1 values. W is one
more, for rows of one token.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bert_d2l.layers.kernels.attention import computed_once, is_exported, transpose
from keras_bert_d2l.types import Tensor

BLOCK = 128  # queries per block; smaller ones compute less, and copy more embeddings


def rows_of_distances(num_distances: int, max_distance: int) -> np.ndarray:
    """Return the row of the embedding of each distance from -M to M, query minus key.

    Further distances have the row of the nearest one of these. M is the larger of both arguments.

    Source: He et al. 2021 (DeBERTa), equation 3; microsoft/DeBERTa, `make_log_bucket_position`.

    Args:
        num_distances: Rows per direction, K.
        max_distance: Distances of more than K / 2 share rows, by their logarithm, up to this one.
            0: each distance has its own row.

    Returns: int32 `(2 M + 1,)`.
    """
    distances = np.arange(max(num_distances, max_distance) + 1)
    if max_distance:
        exact = num_distances // 2
        share = np.log(np.maximum(distances, exact) / exact) / np.log((max_distance - 1) / exact)
        # The quotient is exact at the last distance, in contrast to that of rounded logarithms.
        logarithmic = exact + np.ceil(share * (exact - 1) - 1e-6)
        distances = np.where(distances <= exact, distances, logarithmic)
    both = np.concatenate([-distances[:0:-1], distances]) + num_distances
    return np.clip(both, 0, 2 * num_distances - 1).astype("int32")


def disentangled_bias(
    q: Tensor,
    k: Tensor,
    embeddings: Tensor,
    project: Callable[[Tensor], list[Tensor]],
    max_distance: int,
    positions: Tensor | None,
) -> Tensor:
    """Return the scores of contents with distances, and of distances with contents.

    Source: He et al. 2021 (DeBERTa), equation 4.

    Args:
        q: Queries, `(B, Q, N, H)`.
        k: Keys, `(B, T, N, H)`.
        embeddings: Embeddings of the distances, `(2 K, D)`.
        project: Function of some embeddings, `(R, D)`. It returns what queries are multiplied with,
            and what keys are multiplied with, both `(N, R, H)`.
        max_distance: As for `rows_of_distances`.
        positions: Positions of the queries, int `(B, Q)`. `None`: those of the keys.

    Returns: `(B, N, Q, T)`.
    """
    T = ops.shape(k)[1]
    rows = rows_of_distances(embeddings.shape[0] // 2, max_distance)
    most = len(rows) // 2
    is_known = isinstance(T, int)  # constants are then computed once, by NumPy
    xp: Any = np if is_known else ops
    far = xp.minimum(T - 1, most)  # the columns that shifts drop may be further away

    def row(distances: Tensor, xp: Any = xp) -> Tensor:
        return xp.take(rows, xp.clip(distances, -far, far) + most)

    first = 0
    can_slice = is_known or keras.backend.backend() == "tensorflow"
    if can_slice and not is_exported():  # only the rows in use
        first, last = row(-far), row(far)
        embeddings = ops.slice(embeddings, (first, 0), (last - first + 1, embeddings.shape[1]))
    with computed_once():
        for_queries, for_keys = project(embeddings)
    q, k = (transpose(x, (0, 2, 1, 3)) for x in (q, k))  # (B, N, Q or T, H)
    if positions is None:
        b = min(T, BLOCK) if is_known else ops.minimum(T, BLOCK)
        # From the first query of a block, the distances to the keys are one less per key.
        distances = xp.arange(-(-T // b))[:, None] * b + (b - 1) - xp.arange(T + b)  # (C, W)
        of_q = _by_distance(q, ops.take(for_queries, row(distances) - first, axis=1), b)
        of_k = _by_distance(k, ops.take(for_keys, row(-distances) - first, axis=1), b)
        return of_q + transpose(of_k, (0, 1, 3, 2))
    distances = ops.cast(positions, "int32")[:, :, None] - ops.arange(T, dtype="int32")
    index = row(distances, ops) - first  # (B, Q, T)
    of_q = ops.take_along_axis(_product(q, for_queries), index[:, None], axis=-1)
    if positions.shape[1] == 1:  # fewer products than with the embeddings of all distances
        of_keys = ops.take(for_keys, index[:, 0], axis=1)  # (N, B, T, H)
        return of_q + ops.sum(k * ops.transpose(of_keys, (1, 0, 2, 3)), axis=-1)[:, :, None]
    index = ops.transpose(index, (0, 2, 1))[:, None]
    of_k = ops.take_along_axis(_product(k, for_keys), index, axis=-1)  # (B, N, T, Q)
    return of_q + ops.transpose(of_k, (0, 1, 3, 2))


def _by_distance(x: Tensor, windows: Tensor, b: int) -> Tensor:
    """Return the products of each token with the embedding of its distance to each other one.

    Args:
        x: Queries or keys, `(B, N, T, H)`.
        windows: The embeddings of the distances of each block, `(N, C, W, H)`.
        b: Tokens per block.

    Returns: `(B, N, T, T)`.
    """
    (B, N, T, H), (C, W) = ops.shape(x), ops.shape(windows)[1:3]
    is_padded = not isinstance(T, int) or T % b > 0
    x = ops.pad(x, ((0, 0), (0, 0), (0, C * b - T), (0, 0))) if is_padded else x
    y = _product(ops.reshape(x, (B, N, C, b, H)), windows)  # (B, N, C, b, W)
    # Query i begins at column b - 1 - i, which is one element less per row of W - 1 elements.
    y = ops.slice(ops.reshape(y, (B, N, C, b * W)), (0, 0, 0, b - 1), (B, N, C, b * (W - 1)))
    y = ops.slice(ops.reshape(y, (B, N, C, b, W - 1)), (0, 0, 0, 0, 0), (B, N, C, b, T))
    y = ops.reshape(y, (B, N, C * b, T))
    return ops.slice(y, (0, 0, 0, 0), (B, N, T, T)) if is_padded else y


def _product(x: Tensor, y: Tensor) -> Tensor:
    """Return the product of `x` and `y`, transposed in its last two axes."""
    if keras.backend.backend() != "tensorflow":
        return ops.matmul(x, ops.swapaxes(y, -1, -2))
    import tensorflow as tf

    return tf.matmul(x, y, transpose_b=True)  # which copies nothing
