"""Rows: examples in, what stands in each row and its token ids out.

A row holds one example and padding; or several examples side by side, that are told apart by their
numbers and see nothing of each other ("packed"); or one example and padding up to the longest of
its batch, which holds examples of about one length ("bucketed").

R: rows, T: tokens in a row, E: examples in a row at most.
"""

import dataclasses

import numpy as np

from keras_bert_d2l.data.pretraining.pairs import Examples
from keras_bert_d2l.text.vocab.vocab import Vocab

ROWS = ("padded", "packed", "bucketed")
LENGTH_STEP = 8  # bucketed rows have lengths that are multiples of it
_PACKED_TOGETHER = 1 << 12  # examples: more would hardly fill the rows better
_SORTED_TOGETHER = 64  # batches


def pack(
    lengths: np.ndarray, *, max_len: int, max_examples: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Puts several examples in one row, where they fit.

    Of a few thousand successive examples the longest comes first, and each goes into the fullest
    row that has room for it. The rows of these come in a random order.

    Args:
        lengths: int `(N,)`, tokens of each example.
        max_len: T, at least the largest of them.
        max_examples: E.
        random: Determines the order.

    Returns: int64 `(N,)`, the examples in the order of the rows, and int64 `(R + 1,)`: row r holds
        those from `splits[r]` to `splits[r + 1] - 1`.
    """
    rows: list[list[int]] = []
    for first in range(0, len(lengths), _PACKED_TOGETHER):
        together = _best_fit(lengths[first : first + _PACKED_TOGETHER], max_len, max_examples)
        random.shuffle(together)
        rows.extend([first + example for example in row] for row in together)
    order = np.fromiter((example for row in rows for example in row), np.int64, len(lengths))
    return order, np.cumsum([0, *map(len, rows)])


def _best_fit(lengths: np.ndarray, max_len: int, max_examples: int) -> list[list[int]]:
    rows: list[list[int]] = []
    open_rows: list[list[list[int]]] = [[] for _ in range(max_len + 1)]  # by the room they have
    rooms = 0  # bit n: there is a row with room for n tokens
    by_length = lengths.tolist()
    for example in np.argsort(-lengths, kind="stable").tolist():
        length = by_length[example]
        enough = rooms >> length
        if enough:
            room = length + (enough & -enough).bit_length() - 1  # the lowest bit
            row = open_rows[room].pop()
            if not open_rows[room]:
                rooms ^= 1 << room
        else:
            room, row = max_len, []
            rows.append(row)
        row.append(example)
        if len(row) < max_examples:
            open_rows[room - length].append(row)
            rooms |= 1 << (room - length)
    return rows


def bucket(lengths: np.ndarray, *, batch_size: int, random: np.random.Generator) -> np.ndarray:
    """Puts examples of about one length into one batch.

    Among the examples of 64 successive batches they are sorted by length; the batches cut from
    them come in a random order.

    Args:
        lengths: int `(N,)`, tokens of each example; N is a multiple of `batch_size`.
        batch_size: Examples in a batch.
        random: Determines the order.

    Returns: int64 `(N,)`, the examples in their new order.
    """
    order = []
    together = _SORTED_TOGETHER * batch_size
    for first in range(0, len(lengths), together):
        by_length = np.argsort(lengths[first : first + together], kind="stable") + first
        order.append(random.permutation(by_length.reshape(-1, batch_size)).ravel())
    return np.concatenate(order)


def bucket_lengths(lengths: np.ndarray, *, batch_size: int, max_len: int) -> np.ndarray:
    """T of each batch: its longest example, rounded up to a multiple of 8; at most `max_len`."""
    longest = lengths.reshape(-1, batch_size).max(axis=1)
    return np.minimum(-(-longest // LENGTH_STEP) * LENGTH_STEP, max_len)


def padding_share(
    lengths: np.ndarray,
    *,
    rows: str,
    max_len: int,
    batch_size: int = 32,
    max_examples: int = 8,
    seed: int = 0,
) -> float:
    """The share of a batch's places that hold padding, for examples in a random order.

    Args:
        lengths: int `(N,)`, tokens of each example, at most `max_len`.
        rows: `"padded"`, `"packed"` or `"bucketed"`.
        max_len: Length of a row.
        batch_size: Rows in a batch; what does not fill one is left out.
        max_examples: Examples in a packed row at most.
        seed: Determines the order.

    Raises:
        ValueError: There is no such layout of rows, or fewer examples than a batch.
    """
    if rows not in ROWS:
        raise ValueError(f"`rows` must be one of {', '.join(map(repr, ROWS))}. Received: {rows!r}.")
    if len(lengths) < batch_size:
        raise ValueError(
            f"At least {batch_size} examples are needed for a batch. Received: {len(lengths)}."
        )
    random = np.random.default_rng(seed)
    lengths = random.permutation(lengths)
    if rows == "packed":
        _, splits = pack(lengths, max_len=max_len, max_examples=max_examples, random=random)
        return 1 - lengths.sum() / (max_len * (len(splits) - 1))
    lengths = lengths[: len(lengths) // batch_size * batch_size]
    if rows == "bucketed":
        lengths = lengths[bucket(lengths, batch_size=batch_size, random=random)]
        sizes = bucket_lengths(lengths, batch_size=batch_size, max_len=max_len)
        return 1 - lengths.sum() / (batch_size * sizes.sum())
    return 1 - lengths.mean() / max_len


@dataclasses.dataclass(frozen=True)
class Packed:
    """What tells the examples of a row apart.

    Attributes:
        example_ids: int32 `(R, T)`, 1, 2, ... for the examples of a row and 0 for padding.
        position_ids: int32 `(R, T)`, which start again with every example.
        cls_positions: int32 `(R, E)`, where the examples begin; 0 where there are fewer.
    """

    example_ids: np.ndarray
    position_ids: np.ndarray
    cls_positions: np.ndarray


@dataclasses.dataclass(frozen=True)
class Layout:
    """Token ids in rows.

    Attributes:
        tokens: int32 `(R, T)`, `[CLS] text [SEP]` of one example after the other, `[SEP]` after
            each text, then padding.
        segments: int32 `(R, T)`, 1 for the second text of an example.
        valid_lens: int32 `(R,)`, tokens before the padding.
        labels: int32 `(R, E)`, of the examples; 0 where there are fewer.
        weights: float32 `(R, E)`, 1 for an example that holds text.
        packed: What tells the examples of a row apart, or nothing.
    """

    tokens: np.ndarray
    segments: np.ndarray
    valid_lens: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    packed: Packed | None


def lay_out(
    stored: np.ndarray,
    examples: Examples,
    order: np.ndarray,
    splits: np.ndarray,
    *,
    vocab: Vocab,
    max_len: int,
    max_examples: int,
    segments: bool,
    packed: bool,
) -> Layout:
    """Writes examples into rows.

    Args:
        stored: `TokenStore.tokens`.
        examples: The examples of an epoch.
        order: int `(number of examples,)`, those to write.
        splits: int `(R + 1,)`: row r holds `order[splits[r] : splits[r + 1]]`.
        vocab: Has the special tokens.
        max_len: T.
        max_examples: E.
        segments: Whether a second text is of segment 1; otherwise all are of segment 0.
        packed: Whether to say what tells the examples of a row apart.
    """
    num_rows = len(splits) - 1
    row = np.repeat(np.arange(num_rows), np.diff(splits))  # of each example
    number = np.arange(len(order)) - (splits[:-1] - splits[0])[row]
    num_texts = examples.splits[order + 1] - examples.splits[order]
    owner = np.repeat(np.arange(len(order)), num_texts)  # the example of each text
    text_stop = np.cumsum(num_texts)
    nth = np.arange(len(owner)) - (text_stop - num_texts)[owner]
    start, end = examples.texts[examples.splits[order][owner] + nth].T

    # Tokens of all rows, end to end: a text with its [SEP], and [CLS] before the first.
    sizes = end - start + 1 + (nth == 0)
    stop = np.cumsum(sizes)
    begin = stop - sizes
    example_begin = begin[text_stop - num_texts]
    valid_lens = np.bincount(row[owner], sizes, num_rows).astype(np.int64)
    row_begin = np.cumsum(valid_lens) - valid_lens
    place = np.arange(stop[-1])
    ids = stored.take(place + np.repeat(start - begin - (nth == 0), sizes), mode="clip")
    ids = ids.astype(np.int32)
    ids[stop - 1] = vocab.sep_id
    ids[example_begin] = vocab.cls_id

    shift = np.arange(num_rows) * max_len - row_begin
    target = place + np.repeat(shift[row[owner]], sizes)

    def spread(values: np.ndarray, padding: int = 0) -> np.ndarray:
        spread = np.full(num_rows * max_len, padding, np.int32)
        spread[target] = values
        return spread.reshape(num_rows, max_len)

    def by_example(values: np.ndarray, dtype: type = np.int32) -> np.ndarray:
        table: np.ndarray = np.zeros((num_rows, max_examples), dtype)
        table[row, number] = values
        return table

    apart = None
    if packed:
        apart = Packed(
            example_ids=spread(np.repeat(number[owner] + 1, sizes)),
            position_ids=spread(place - np.repeat(example_begin[owner], sizes)),
            cls_positions=by_example(example_begin - row_begin[row]),
        )
    return Layout(
        tokens=spread(ids, vocab.pad_id),
        segments=spread(np.repeat((nth > 0) & segments, sizes)),
        valid_lens=valid_lens.astype(np.int32),
        labels=by_example(examples.labels[order]),
        weights=by_example(end[text_stop - 1] > start[text_stop - 1], np.float32),
        packed=apart,
    )
