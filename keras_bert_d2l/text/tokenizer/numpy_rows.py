"""Rows of token ids in NumPy, which take less time than TensorFlow's operations outside of graphs.

The rows are those of `frame_tokens`. This module does not need TensorFlow. B: rows, T: tokens in a
row, N: tokens of all texts.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_bert_d2l.text.vocab import Vocab


class Ids(NamedTuple):
    """The tokens of texts: all ids, int32 `(N,)`, and the number of each text, int64 `(B,)`."""

    values: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> "Ids":
        """Return the tokens of lists of integers."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return cls(np.fromiter(itertools.chain.from_iterable(rows), np.int32), lengths)

    def keep(self, most: np.ndarray, keeps_end: bool) -> "Ids":
        """Return at most `most` tokens of each text, int `(B,)` or `()`."""
        kept = np.minimum(self.lengths, most)
        first = np.cumsum(self.lengths) - self.lengths
        first += (self.lengths - kept) * keeps_end
        places = np.arange(len(self.values)) - np.repeat(first, self.lengths)
        is_kept = (places >= 0) & (places < np.repeat(kept, self.lengths))
        return Ids(self.values[is_kept], kept)


def framed(
    texts: Sequence[Ids],
    vocab: Vocab,
    max_len: int | None = None,
    *,
    pad: bool = False,
    truncation_side: str = "right",
) -> dict[str, np.ndarray]:
    """Return the rows of texts, or of the first and the second texts of pairs.

    The longer text of a pair is truncated first.

    Args:
        texts: The tokens of the texts.
        vocab: The vocabulary.
        max_len: Maximum number of tokens in a row. None: no text is truncated.
        pad: Whether to pad to `max_len`, instead of to the longest row.
        truncation_side: The end of a text that truncation removes, `"right"` or `"left"`.

    Returns:
        `tokens` and `segments`, int32 `(B, T)`, `valid_lens`, int32 `(B,)`, and `num_tokens`, the
        lengths of the rows before truncation, int64 `(B,)`.
    """
    num_added = vocab.num_added(len(texts))
    num_tokens = num_added + np.sum([ids.lengths for ids in texts], axis=0)
    if max_len is not None and (num_tokens > max_len).any():
        sizes = _kept_sizes(max_len - num_added, *(ids.lengths for ids in texts))
        pairs = zip(texts, sizes, strict=True)
        texts = [ids.keep(size, truncation_side == "left") for ids, size in pairs]
    first, *second = texts
    first_ends = 1 + first.lengths[:, None]
    second_starts = first_ends + num_added - 1 - len(second)
    ends = second_starts + sum(ids.lengths[:, None] + 1 for ids in second)
    least = vocab.num_added(1)  # a batch without rows is as wide as an empty text
    places = np.arange(max_len if pad and max_len else ends.max(initial=least))
    tokens = np.where(places < ends, np.int32(vocab.sep_id), np.int32(vocab.pad_id))
    tokens[:, 0] = vocab.cls_id
    tokens[(places >= 1) & (places < first_ends)] = first.values
    in_second = (places >= second_starts) & (places < ends)
    for ids in second:
        tokens[in_second & (places < ends - 1)] = ids.values
    return {
        "tokens": tokens,
        "segments": in_second.astype(np.int32),
        "valid_lens": ends[:, 0].astype(np.int32),
        "num_tokens": num_tokens,
    }


def _kept_sizes(
    room: int, first: np.ndarray, second: np.ndarray | None = None
) -> tuple[np.ndarray, ...]:
    """Return how many tokens of each text fit into `room`, from the lengths of the texts."""
    if second is None:
        return (np.array(room),)
    of_shorter = np.minimum(np.minimum(first, second), room // 2)
    of_longer, is_longer = room - of_shorter, first > second
    return np.where(is_longer, of_longer, of_shorter), np.where(is_longer, of_shorter, of_longer)
