"""A long text beside a short one in, rows that each hold a part of the long one out.

W: windows of all B pairs of texts, T: tokens in a row.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert_d2l.text.tokenizer.framing import ADDED_TO_PAIR, frame, frame_values, require
from keras_bert_d2l.text.tokenizer.offsets import token_spans
from keras_bert_d2l.text.tokenizer.wordpiece import Pieces
from keras_bert_d2l.text.vocab.vocab import Vocab


def sliding_windows(
    questions: Pieces, contexts: Pieces, *, vocab: Vocab, max_len: int, overlap: int
) -> dict[str, tf.Tensor]:
    """Returns the rows that `Tokenizer.windows` describes, for texts that are cut into pieces."""
    _check_overlap(max_len, overlap)
    question_lengths = questions[0].row_lengths()
    context_lengths = contexts[0].row_lengths()
    room = tf.constant(max_len - ADDED_TO_PAIR, tf.int64) - question_lengths
    message = (
        f"A question leaves no more than overlap={overlap} tokens of max_len={max_len} to its "
        "context. Raise `max_len`, lower `overlap` or shorten the question."
    )
    with tf.control_dependencies(require(room > overlap, message)):
        step = room - overlap
    num_more = tf.maximum(context_lengths - room + step - 1, 0) // step
    numbers = tf.ragged.range(num_more + 1)  # of the windows of each pair: 0, 1, ...
    rows = numbers.value_rowids()
    first = numbers.flat_values * tf.gather(step, rows)
    end = tf.minimum(first + tf.gather(room, rows), tf.gather(context_lengths, rows))
    row_starts = tf.gather(contexts[0].row_starts(), rows)
    taken = tf.ragged.range(row_starts + first, row_starts + end)

    tokens, starts, ends = (
        (tf.gather(a, rows), tf.gather(b.flat_values, taken))
        for a, b in zip(questions, contexts, strict=True)
    )
    return {
        **frame(*tokens, vocab=vocab, max_len=max_len),
        "starts": frame_values(*starts, 0, max_len),
        "ends": frame_values(*ends, 0, max_len),
        "rows": tf.cast(rows, tf.int32),
    }


def answer_spans(windows: dict[str, Any], starts: Any, ends: Any) -> tf.Tensor:
    """Finds answers that are given by characters of the contexts in the windows.

    Args:
        windows: What `Tokenizer.windows` returned, all of it.
        starts: First character of the answer in each context, int `(B,)`.
        ends: Its last character plus one, int `(B,)`.

    Returns: positions of the first and the last token of the answer in each window, int32
        `(W, 2)`; 0 and 0, the start token, where the window does not hold the whole answer.
    """
    in_context = tf.convert_to_tensor(windows["segments"]) == 1
    token_starts = tf.where(in_context, windows["starts"], 0)
    token_ends = tf.where(in_context, windows["ends"], 0)
    rows = tf.convert_to_tensor(windows["rows"])
    starts = tf.gather(tf.convert_to_tensor(starts, tf.int32), rows)
    ends = tf.gather(tf.convert_to_tensor(ends, tf.int32), rows)
    is_text = token_starts < token_ends
    window_start = tf.reduce_min(tf.where(is_text, token_starts, tf.int32.max), axis=1)
    window_end = tf.reduce_max(token_ends, axis=1)
    # The first window of a context and the last reach to its ends, where characters of no token
    # may stand: white space, or an accent of its own.
    is_other = rows[1:] != rows[:-1]
    window_start = tf.where(tf.pad(is_other, [[1, 0]], constant_values=True), 0, window_start)
    is_last = tf.pad(is_other, [[0, 1]], constant_values=True)
    window_end = tf.where(is_last, tf.int32.max, window_end)
    spans = token_spans(token_starts, token_ends, starts, ends)
    is_whole = (window_start <= starts) & (ends <= window_end) & (spans[:, 0] >= 0)
    return tf.where(is_whole[:, tf.newaxis], spans, 0)


def _check_overlap(max_len: int, overlap: int) -> None:
    for name, value, least in (("max_len", max_len, ADDED_TO_PAIR + 2), ("overlap", overlap, 0)):
        is_int = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not is_int or value < least:
            raise ValueError(
                f"`{name}` must be an integer of at least {least}. Received: {name}={value!r}."
            )
