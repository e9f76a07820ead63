"""Token ids in, rows for the model out: truncated, framed by special tokens and padded.

Nothing here needs tensorflow-text. B: rows, T: tokens in a row.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert_d2l.text.vocab.vocab import Vocab

TRUNCATIONS = ("longest_first", "only_first", "only_second")
ADDED_TO_ONE, ADDED_TO_PAIR = 2, 3  # start and separator; start and two separators


def frame(
    tokens_a: Any,
    tokens_b: Any = None,
    *,
    vocab: Vocab,
    max_len: int | None = None,
    truncation: str = "longest_first",
) -> dict[str, tf.Tensor]:
    """Makes a batch of token ids: `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, and padding.

    Args:
        tokens_a: Ids without special tokens, int `(B, None)`, ragged or nested lists.
        tokens_b: Those of the second texts, as many rows, or None.
        vocab: The `Vocab`, for its special tokens.
        max_len: None (rows are as long as the longest) or the length T of every row.
        truncation: Which text loses its end where a pair is too long. `"longest_first"`: the
            longer one until both are equally long, then both; an odd token stays with the text
            that was longer, or with `b`. `"only_first"`, `"only_second"`: that one.

    Returns: a dictionary of int32 tensors: `tokens` `(B, T)`; `segments` `(B, T)`, 1 from `b` to
        the last separator and 0 elsewhere; `valid_lens` `(B,)`, tokens that are no padding.

    Raises:
        ValueError: The ids are no integers, the texts are not equally many, `max_len` has no room
            for a token of each text, `truncation` has no such text or would leave nothing of it.
    """
    is_pair = tokens_b is not None
    check_max_len(max_len, ADDED_TO_PAIR if is_pair else ADDED_TO_ONE, 1 + is_pair)
    tokens_a = as_rows(tokens_a)
    tokens_b = as_rows(tokens_b) if is_pair else None
    if tokens_b is not None:
        check_same_number(tokens_a, tokens_b)
    tokens_a, tokens_b = truncate(tokens_a, tokens_b, max_len, truncation)
    cls_id, sep_id, pad_id = vocab.cls_id, vocab.sep_id, vocab.pad_id
    first, row = _framed(tokens_a, tokens_b, cls_id, sep_id)
    tokens = row.to_tensor(pad_id, shape=(None, max_len))
    valid_lens = tf.cast(row.row_lengths(), tf.int32)
    num_tokens = tf.shape(tokens)[1]
    in_first = tf.sequence_mask(first.row_lengths(), num_tokens, tf.int32)
    segments = tf.sequence_mask(valid_lens, num_tokens, tf.int32) - in_first
    if max_len is not None:
        segments = tf.ensure_shape(segments, (None, max_len))
    return {"tokens": tokens, "segments": segments, "valid_lens": valid_lens}


def frame_values(
    values_a: tf.RaggedTensor, values_b: tf.RaggedTensor | None, outside: int, max_len: int | None
) -> tf.Tensor:
    """Returns what belongs to the tokens of rows, `(B, T)`, with `outside` where `frame` adds."""
    _, row = _framed(values_a, values_b, outside, outside)
    return row.to_tensor(outside, shape=(None, max_len))


def truncate(
    tokens_a: tf.RaggedTensor,
    tokens_b: tf.RaggedTensor | None,
    max_len: int | None,
    truncation: str = "longest_first",
) -> tuple[tf.RaggedTensor, tf.RaggedTensor | None]:
    """Cuts ends off until the special tokens have room, too; arguments as those of `frame`."""
    if truncation not in TRUNCATIONS:
        raise ValueError(
            f"`truncation` must be one of {', '.join(map(repr, TRUNCATIONS))}. "
            f"Received: truncation={truncation!r}."
        )
    if tokens_b is None:
        if truncation == "only_second":
            raise ValueError(
                "truncation='only_second' cuts the second text of a pair. Received: no second text."
            )
        return tokens_a if max_len is None else tokens_a[:, : max_len - ADDED_TO_ONE], None
    if max_len is None:
        return tokens_a, tokens_b
    room = tf.constant(max_len - ADDED_TO_PAIR, tf.int64)
    lengths_a, lengths_b = tokens_a.row_lengths(), tokens_b.row_lengths()
    if truncation == "longest_first":
        kept_a, kept_b = _longest_first(lengths_a, lengths_b, room)
        return _first(tokens_a, kept_a), _first(tokens_b, kept_b)
    if truncation == "only_first":
        return _first(tokens_a, _what_is_left(lengths_a, room - lengths_b, max_len)), tokens_b
    return tokens_a, _first(tokens_b, _what_is_left(lengths_b, room - lengths_a, max_len))


def as_rows(ids: Any) -> tf.RaggedTensor:
    """Returns integers `(B, None)` for nested lists, a dense or a ragged tensor, or one row."""
    expected = "Ids must be integers (B, T), dense or ragged, or one row (T,)."
    try:
        if isinstance(ids, list | tuple) and any(isinstance(row, list | tuple) for row in ids):
            ids = tf.ragged.constant(ids, tf.int32, ragged_rank=1)
        elif not isinstance(ids, tf.RaggedTensor):
            ids = tf.convert_to_tensor(ids)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{expected} Received: {ids!r:.120}.") from error
    if ids.shape.rank == 1:
        ids = ids[tf.newaxis]
    if ids.shape.rank != 2 or not ids.dtype.is_integer:
        raise ValueError(f"{expected} Received: {ids.dtype.name} of shape {ids.shape}.")
    if not isinstance(ids, tf.RaggedTensor):
        ids = tf.RaggedTensor.from_tensor(ids)
    return tf.cast(ids, tf.int32).with_row_splits_dtype(tf.int64)


def check_max_len(max_len: int | None, num_added: int, num_texts: int) -> None:
    """Raises `ValueError` unless `max_len` is None or has room for one token of each text."""
    if max_len is None:
        return
    is_int = isinstance(max_len, int | np.integer) and not isinstance(max_len, bool)
    if not is_int or max_len < num_added + num_texts:
        raise ValueError(
            f"`max_len` must be None or an integer of at least {num_added + num_texts}: "
            f"{num_added} special tokens and one of each text. Received: max_len={max_len!r}."
        )


def check_same_number(tokens_a: tf.RaggedTensor, tokens_b: tf.RaggedTensor) -> None:
    """Raises `ValueError` where it is known that the rows are not equally many."""
    num_a, num_b = tokens_a.shape[0], tokens_b.shape[0]
    if num_a is not None and num_b is not None and num_a != num_b:
        raise ValueError(
            "`texts` and `texts_b` must be equally many, one pair a row. Received: "
            f"{num_a} and {num_b}."
        )


def require(condition: tf.Tensor, message: str) -> list[tf.Operation]:
    """Raises `ValueError` unless all of `condition` holds; in a graph, returns the op that fails.

    Args:
        condition: bool, any shape.
        message: What to say.

    Returns: control dependencies; none outside of a graph.
    """
    holds = tf.reduce_all(condition)
    if tf.executing_eagerly():
        if not holds:
            raise ValueError(message)
        return []
    return [tf.debugging.Assert(holds, [message])]


def _longest_first(
    lengths_a: tf.Tensor, lengths_b: tf.Tensor, room: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    longer, shorter = tf.maximum(lengths_a, lengths_b), tf.minimum(lengths_a, lengths_b)
    kept_of_shorter = tf.minimum(shorter, room // 2)
    kept_of_longer = tf.minimum(longer, room - kept_of_shorter)
    a_is_longer = lengths_a > lengths_b
    return (
        tf.where(a_is_longer, kept_of_longer, kept_of_shorter),
        tf.where(a_is_longer, kept_of_shorter, kept_of_longer),
    )


def _what_is_left(lengths: tf.Tensor, room: tf.Tensor, max_len: int) -> tf.Tensor:
    kept = tf.minimum(lengths, room)
    message = (
        f"Nothing is left of a text: the other one alone is too long for max_len={max_len}. "
        "Raise `max_len`, or use truncation='longest_first'."
    )
    with tf.control_dependencies(require((kept == lengths) | (kept > 0), message)):
        return tf.identity(kept)


def _first(rows: tf.RaggedTensor, kept: tf.Tensor) -> tf.RaggedTensor:
    """Returns the first `kept[i]` values of each row i."""
    return tf.ragged.boolean_mask(rows, tf.ragged.range(rows.row_lengths()) < kept[:, tf.newaxis])


def _framed(
    values_a: tf.RaggedTensor, values_b: tf.RaggedTensor | None, start: int, end: int
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Returns the part of the first text, and the whole row."""
    num_rows, dtype = values_a.nrows(), values_a.dtype
    start, end = (tf.fill([num_rows, 1], tf.constant(value, dtype)) for value in (start, end))
    first = tf.concat([start, values_a, end], axis=1)
    return first, first if values_b is None else tf.concat([first, values_b, end], axis=1)
