"""The best spans of texts as answers to questions, for Python and for exports.

B: questions in a batch, W: windows of all contexts, T: tokens per window, L: maximum number of
tokens in an answer, N: candidate spans, n: best spans of a window or a context, k: answers per
question.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from keras_bert_d2l.signatures.characters import Characters
from keras_bert_d2l.signatures.signature import Answer
from keras_bert_d2l.types import Tensor

PLACES = ("rows", "starts", "ends")  # what `best_answers` needs of windows
N_BEST = 20  # answers that the softmax runs over, as in google-research/bert, run_squad.py
_NEVER = float("-inf")
_FINITE = np.finfo("float32").min, np.finfo("float32").max


def best_spans(
    windows: Mapping[str, Tensor], logits: Mapping[str, Tensor], max_answer_len: int, num_best: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the spans of context tokens with the highest logits, in the order of the windows.

    The logit of a span is the sum of the start logit of its first token and the end logit of its
    last token.

    Args:
        windows: `segments`, `starts` and `ends`, int `(W, T)`, as `Tokenizer.windows` returns them.
            They may have more padding than the logits.
        logits: `start` and `end`, float `(W, T)`.
        max_answer_len: Maximum number of tokens in a span, L.
        num_best: Maximum number of spans per window, n.

    Returns: four tensors `(N,)`: the logits, and as int32 the indices of the windows, of the first
        tokens and of the last tokens.
    """
    length = tf.shape(logits["start"])[1]
    max_answer_len = tf.minimum(max_answer_len, length)
    segments, starts_at, ends_at = (
        windows[name][:, :length] for name in ("segments", "starts", "ends")
    )
    is_context = (segments == 1) & (ends_at > starts_at)
    never = tf.constant(_NEVER, logits["start"].dtype)
    starts, ends = (tf.where(is_context, logits[side], never) for side in ("start", "end"))
    # (W, T, L): the spans from each token to itself and to the following tokens.
    ends = tf.pad(ends, [[0, 0], [0, max_answer_len]], constant_values=never)
    to = tf.range(length)[:, tf.newaxis] + tf.range(max_answer_len)
    spans = starts[:, :, tf.newaxis] + tf.gather(ends, to, axis=1)
    flat = tf.reshape(spans, [tf.shape(spans)[0], length * max_answer_len])
    flat = tf.pad(flat, [[0, 0], [0, num_best]], constant_values=never)
    best, place = tf.math.top_k(flat, num_best)
    is_span = best > never
    window = tf.cast(tf.where(is_span)[:, 0], tf.int32)
    place = tf.boolean_mask(place, is_span)
    first = place // max_answer_len
    return tf.boolean_mask(best, is_span), window, first, first + place % max_answer_len


@tf.function(autograph=False, reduce_retracing=True)
def best_answers(
    windows: Mapping[str, Tensor],
    spans: Sequence[Tensor],
    nulls: Tensor,
    contexts: Tensor,
    *,
    has_spaces: bool,
    num_best: int,
    top_k: int,
    null_threshold: float | None,
) -> Answer:
    """Return the best answers of contexts.

    Args:
        windows: `starts` and `ends`, int `(W, T)`, and `rows`, the index of the context of each
            window, int `(W,)`, as `Tokenizer.windows` returns them.
        spans: The candidates from `best_spans`.
        nulls: The no-answer logit of each window, `(W,)`.
        contexts: Strings `(B,)`.
        has_spaces: Whether tokens may contain spaces. Those of WordPiece do not.
        num_best: Number of answers that the softmax runs over, n.
        top_k: Number of answers per context, k.
        null_threshold: As for `answer`.

    Returns: `answers`, strings, their probabilities `scores` and `logits`, and `starts` and `ends`,
        the indices of their characters, each `(B, k)`; and `null`, the no-answer logit of each
        context, and `best`, the logit of its best span, `(B,)`. Rows are padded with empty strings
        and zeros. "No answer" is the empty string; it is returned as the first answer only.
    """
    characters, num_rows = Characters(contexts), tf.shape(contexts)[0]
    null = tf.math.unsorted_segment_min(nulls, windows["rows"], num_rows)
    logits, starts, ends = _of_contexts(windows, spans, characters, num_rows, has_spaces, num_best)
    has_span = logits[:, 0] > _NEVER
    best = tf.where(has_span, logits[:, 0], null)
    first_column = tf.zeros(num_rows, tf.int32)
    if null_threshold is not None:
        is_null = has_span & (null - best > np.float32(np.clip(null_threshold, *_FINITE)))
        logits = tf.concat([null[:, tf.newaxis], logits], axis=1)
        starts, ends = (tf.pad(x, [[0, 0], [1, 0]]) for x in (starts, ends))
        first_column = tf.where(is_null, 0, 1)
    columns = first_column[:, tf.newaxis] + tf.range(top_k)
    scores, logits, starts, ends = (
        tf.gather(x, columns, batch_dims=1) for x in (_softmax(logits), logits, starts, ends)
    )
    of_rows = tf.repeat(tf.range(num_rows), top_k)
    texts = characters.spans(of_rows, tf.reshape(starts, [-1]), tf.reshape(ends, [-1]))
    return {
        "answers": tf.reshape(texts, [num_rows, top_k]),
        "scores": scores,
        "logits": tf.where(logits > _NEVER, logits, null[:, tf.newaxis]),
        "starts": starts,
        "ends": ends,
        "null": null,
        "best": best,
    }


def _of_contexts(
    windows: Mapping[str, Tensor],
    candidates: Sequence[Tensor],
    characters: Characters,
    num_rows: tf.Tensor,
    has_spaces: bool,
    num_best: int,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the logits, starts and ends of the n best spans per context.

    Each `(B, n)`, padded with minus infinity and zeros.
    """
    spans, window, first, last = candidates
    start, end = (
        tf.gather_nd(windows[name], tf.stack([window, token], axis=1))
        for name, token in (("starts", first), ("ends", last))
    )
    row = tf.gather(windows["rows"], window)
    start, end = characters.whole(row, start, end, has_spaces)
    if has_spaces:  # a token may be a space alone
        is_text = start < end
        spans, row, start, end = (tf.boolean_mask(x, is_text) for x in (spans, row, start, end))
    # Windows share tokens and tokens share characters, so a span may be found more than once.
    row, start, end = (tf.cast(x, tf.int64) for x in (row, start, end))
    size = tf.reduce_max(tf.concat([end, [0]], axis=0)) + 1
    distinct, number = tf.unique((row * size + start) * size + end)
    spans = tf.math.unsorted_segment_max(spans, number, tf.size(distinct))
    row, start, end = distinct // size**2, distinct // size % size, distinct % size
    order = tf.argsort(row, stable=True)
    spans, row, start, end = (tf.gather(x, order) for x in (spans, row, start, end))
    number = tf.RaggedTensor.from_value_rowids(
        tf.range(tf.size(distinct)), row, tf.cast(num_rows, tf.int64), validate=False
    )
    padded = [[0, 0], [0, num_best]]
    dense = tf.pad(number.with_values(spans).to_tensor(_NEVER), padded, constant_values=_NEVER)
    best, column = tf.math.top_k(dense, num_best)
    is_span = best > _NEVER

    def of_best(values: tf.Tensor) -> tf.Tensor:
        values = tf.pad(number.with_values(tf.cast(values, tf.int32)).to_tensor(), padded)
        return tf.where(is_span, tf.gather(values, column, batch_dims=1), 0)

    return best, of_best(start), of_best(end)


def _softmax(logits: tf.Tensor) -> tf.Tensor:
    """Return the softmax of `(B, n)`, with zeros for minus infinity, even if a row has no spans."""
    is_span = logits > _NEVER
    highest = tf.reduce_max(logits, axis=1, keepdims=True)
    powers = tf.where(is_span, tf.exp(tf.where(is_span, logits - highest, 0.0)), 0.0)
    return tf.math.divide_no_nan(powers, tf.reduce_sum(powers, axis=1, keepdims=True))
