"""Group examples of similar length into batches, which reduces padding."""

import numpy as np

_SORTED_BATCHES = 64  # number of batches whose examples are sorted together


def bucket(lengths: np.ndarray, *, batch_size: int, random: np.random.Generator) -> np.ndarray:
    """Order examples so that each batch contains examples of similar length.

    The examples of 64 successive batches are sorted by length and divided into batches again.
    These batches are then shuffled.

    Args:
        lengths: int `(N,)`, tokens per example. N must be a multiple of `batch_size`.
        batch_size: Examples per batch.
        random: Generator that determines the order of the batches.

    Returns:
        int64 `(N,)`, the examples in their new order.
    """
    order = []
    sorted_together = _SORTED_BATCHES * batch_size
    for first in range(0, len(lengths), sorted_together):
        by_length = np.argsort(lengths[first : first + sorted_together], kind="stable") + first
        order.append(random.permutation(by_length.reshape(-1, batch_size)).ravel())
    return np.concatenate(order)
