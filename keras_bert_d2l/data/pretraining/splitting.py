"""Split documents into a training part and a held-out part."""

import numpy as np

from keras_bert_d2l.checks import check_choice, check_share


def split_documents(hashes: np.ndarray, split: str | None, held_out: float) -> np.ndarray:
    """Return the indices of the documents in one part of the split.

    Args:
        hashes: uint64 `(N,)`, `TokenStore.document_hashes`.
        split: `"train"`, `"held_out"`, or None for all.
        held_out: Share of documents to hold out, in (0, 1): those with the smallest hashes.

    Returns:
        Document indices in ascending order.

    Raises:
        ValueError: An argument is out of range, or a part would have fewer than two documents.
    """
    if split is None:
        return np.arange(len(hashes))
    check_choice("split", split, ("train", "held_out"))
    check_share("held_out", held_out)
    different = np.unique(hashes)
    if len(different) < 4:
        raise ValueError(
            "Holding out documents requires at least two different documents in each part, for "
            "every objective, because a false pair is made of two. Received: "
            f"{len(hashes):,} in total, {len(different):,} of them different. Separate "
            "documents with blank lines, put each in its own file, or add text."
        )
    count = max(2, round(held_out * len(hashes)))
    largest = np.clip(np.sort(hashes)[count - 1], different[1], different[-3])
    is_held_out = hashes <= largest  # identical documents stay together
    return np.flatnonzero(is_held_out == (split == "held_out"))
