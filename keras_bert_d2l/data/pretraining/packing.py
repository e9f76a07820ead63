"""Assign examples to rows, and write their token ids.

There are three row layouts. A "padded" row contains one example and padding. A "packed" row
contains several examples, numbered so that a model can keep them separate. A "bucketed" row
contains one example; the rows of a batch have similar lengths and are padded to the longest.

R: rows, T: tokens per row, E: maximum number of examples per row.
"""

from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from keras_bert_d2l.data.pretraining.pairs import Examples
from keras_bert_d2l.text.vocab import Vocab

Rows: TypeAlias = Literal["padded", "packed", "bucketed"]
ROWS = get_args(Rows)
LENGTH_STEP = 8  # the length of a bucketed row is a multiple of this
_PACKED_TOGETHER = 1 << 12  # examples packed as a group; larger groups hardly fill rows better


def pack(
    lengths: np.ndarray, *, max_len: int, max_examples: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Assign examples to rows, several per row where they fit.

    The examples are packed in groups of a few thousand. Within a group, from longest to shortest,
    each example goes to the fullest row that has room for it ("best-fit decreasing"). Then the rows
    of the group are shuffled.

    Args:
        lengths: int `(N,)`, tokens per example.
        max_len: T, at least the maximum of `lengths`.
        max_examples: E.
        random: Generator that determines the order of the rows.

    Returns:
        int64 `order (N,)`, the examples in row order; and int64 `splits (R + 1,)`: row r contains
        the examples `order[splits[r] : splits[r + 1]]`.
    """
    rows: list[list[int]] = []
    for first in range(0, len(lengths), _PACKED_TOGETHER):
        group = _best_fit(lengths[first : first + _PACKED_TOGETHER], max_len, max_examples)
        random.shuffle(group)
        rows.extend([first + example for example in row] for row in group)
    order = np.fromiter((example for row in rows for example in row), np.int64, len(lengths))
    return order, np.cumsum([0, *map(len, rows)])


def _best_fit(lengths: np.ndarray, max_len: int, max_examples: int) -> list[list[int]]:
    rows: list[list[int]] = []
    open_rows: list[list[list[int]]] = [[] for _ in range(max_len + 1)]  # by free tokens
    rooms = 0  # bit n is set if a row has exactly n free tokens
    by_length = lengths.tolist()
    for example in np.argsort(-lengths, kind="stable").tolist():
        length = by_length[example]
        enough = rooms >> length
        if enough:
            room = length + (enough & -enough).bit_length() - 1  # lowest set bit
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


def bucket_lengths(lengths: np.ndarray, *, batch_size: int, max_len: int) -> np.ndarray:
    """Return T of each batch: the length of its longest example, rounded up to a multiple of 8."""
    longest = lengths.reshape(-1, batch_size).max(axis=1)
    return np.minimum(-(-longest // LENGTH_STEP) * LENGTH_STEP, max_len)


class Layout(NamedTuple):
    """Token ids in rows. The last three fields are set for packed rows only.

    Attributes:
        tokens: int32 `(R, T)`: the examples one after another, then padding. An example is `[CLS]`
            and its texts, with a `[SEP]` after each text.
        segments: int32 `(R, T)`, 1 for the second text of a pair.
        valid_lens: int32 `(R,)`, the number of tokens before the padding.
        labels: int32 `(R, E)`, the labels of the examples; 0 in unused slots.
        weights: float32 `(R, E)`, 1 for an example that contains text.
        example_ids: int32 `(R, T)`, 1, 2, ... for the examples of a row and 0 for padding.
        position_ids: int32 `(R, T)`, positions that start at 0 in every example.
        cls_positions: int32 `(R, E)`, the positions of `[CLS]`; 0 in unused slots.
    """

    tokens: np.ndarray
    segments: np.ndarray
    valid_lens: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    example_ids: np.ndarray | None = None
    position_ids: np.ndarray | None = None
    cls_positions: np.ndarray | None = None


def lay_out(
    stored: np.ndarray,
    examples: Examples,
    order: np.ndarray,
    splits: np.ndarray,
    *,
    vocab: Vocab,
    max_len: int,
    max_examples: int = 1,
    packed: bool = False,
) -> Layout:
    """Write the token ids of examples into rows, vectorized over all rows.

    Args:
        stored: `TokenStore.tokens`.
        examples: The examples of an epoch.
        order: int `(number of examples,)`, the examples to write.
        splits: int `(R + 1,)`. Row r contains
            `order[splits[r] - splits[0] : splits[r + 1] - splits[0]]`.
        vocab: The vocabulary, for its special tokens.
        max_len: T.
        max_examples: E.
        packed: Whether to fill the fields of packed rows.

    Returns:
        The rows.
    """
    # The tokens of all examples: [CLS] before each example, [SEP] after each text.
    texts = examples.texts[order]
    example, nth = (place.ravel() for place in np.indices(texts.shape[:2]))
    start, end = texts.reshape(-1, 2).T
    is_first = nth == 0
    has_more = is_first & examples.are_pairs & (examples.num_separators > 1)  # two separators
    sizes = end - start + 1 + is_first + has_more  # of each text with its special tokens
    stop = np.cumsum(sizes)
    source = np.arange(stop[-1]) + np.repeat(start - (stop - sizes) - is_first, sizes)
    ids = stored.take(source, mode="clip").astype(np.int32)  # special tokens may be out of range
    ids[stop - 1] = vocab.sep_id
    ids[stop[has_more] - 2] = vocab.sep_id
    begin = (stop - sizes)[is_first]
    ids[begin] = vocab.cls_id

    num_rows = len(splits) - 1
    row = np.repeat(np.arange(num_rows), np.diff(splits))  # the row of each example
    # The index of each example in its row.
    number = np.arange(len(order)) - (splits[:-1] - splits[0])[row]
    valid_lens = np.bincount(row[example], sizes, num_rows).astype(np.int64)
    row_begin = np.cumsum(valid_lens) - valid_lens
    is_token = np.arange(max_len) < valid_lens[:, None]  # True in the order of `ids`

    def by_token(values: np.ndarray, padding: int = 0) -> np.ndarray:
        table = np.full((num_rows, max_len), padding, np.int32)
        table[is_token] = values
        return table

    def by_text(values: np.ndarray) -> np.ndarray:
        return by_token(np.repeat(values, sizes))

    def by_example(values: np.ndarray, dtype: type = np.int32) -> np.ndarray:
        table: np.ndarray = np.zeros((num_rows, max_examples), dtype)
        table[row, number] = values
        return table

    layout = Layout(
        tokens=by_token(ids, vocab.pad_id),
        segments=by_text((nth > 0) & examples.are_pairs),
        valid_lens=valid_lens.astype(np.int32),
        labels=by_example(examples.labels[order]),
        weights=by_example(texts[:, 0, 1] > texts[:, 0, 0], np.float32),
    )
    if not packed:
        return layout
    return layout._replace(
        example_ids=by_text(number[example] + 1),
        position_ids=by_token(np.arange(len(ids)) - np.repeat(begin[example], sizes)),
        cls_positions=by_example(begin - row_begin[row]),
    )
