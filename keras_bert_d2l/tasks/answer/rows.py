"""Rows of questions with the windows of their contexts.

N: examples, R: rows, B: questions tokenized together, T: tokens per row.
"""

import functools
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from keras_bert_d2l.checks import IGNORED
from keras_bert_d2l.contract.task import EncodingOptions
from keras_bert_d2l.data.tasks.encoding import TEXTS_TOGETHER, Fields, in_parts, splits, unpadded
from keras_bert_d2l.tasks.answer import window_labels
from keras_bert_d2l.tasks.answer.examples import QuestionExamples
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

_QUESTIONS_TOGETHER = 128  # contexts are long, and their offsets take memory
_WORTH_A_GRAPH = 5_000  # questions; compiling takes seconds, but makes encoding five times as fast
_NO_ANSWER = (-1, -1)


_RowsOfWindows: TypeAlias = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tuple[tf.Tensor, ...]]


def encoded_questions(
    examples: QuestionExamples, tokenizer: Tokenizer, options: EncodingOptions
) -> Fields:
    """Encode questions with the windows of their contexts, one row per window."""
    max_len = options.max_len
    overlap = max_len // 3 if options.overlap is None else options.overlap
    question_lengths, fitting, dropped = _question_lengths(examples, tokenizer, max_len, overlap)
    rows_of_windows: _RowsOfWindows
    rows_of_windows = functools.partial(_rows_of_windows, tokenizer, max_len, overlap)
    if len(fitting) > _WORTH_A_GRAPH:
        rows_of_windows = _windows_graph(tokenizer, max_len, overlap)

    def in_part(chosen: slice) -> tuple[tf.Tensor, ...]:
        numbers = fitting[chosen]
        *of_rows, rows = rows_of_windows(
            tf.constant([examples.questions[number] for number in numbers]),
            tf.constant([examples.contexts[number] for number in numbers]),
            tf.constant([_first_answer(examples, number) for number in numbers], tf.int32),
        )
        return (*of_rows, tf.gather(tf.constant(numbers, tf.int32), rows))

    tokens, lengths, seconds, spans, owners = in_parts(in_part, len(fitting), _QUESTIONS_TOGETHER)
    num_rows = np.bincount(owners, minlength=len(examples))
    # The rows of one context overlap, and each repeats the question.
    added = tokenizer.vocab.num_added(2)
    alone = lengths - question_lengths[owners] - added - overlap
    full_lengths = np.bincount(owners, alone, len(examples)).astype(np.int32)
    full_lengths += (num_rows > 0) * (question_lengths + added + overlap)
    spans_of_rows = None
    if examples.answers is not None:
        spans_of_rows = spans
        if num_lost := len(np.unique(owners[spans[:, 0] == IGNORED])):
            dropped["answer does not fit in any row, so it is not learned"] = num_lost
    return {
        "label_names": (),
        "tokens": tokens,
        "splits": splits(lengths),
        "seconds": seconds,
        "labels": spans_of_rows,
        "examples": owners,
        "full_lengths": full_lengths,
        "num_truncated": int((num_rows > 1).sum()),
        "dropped": dropped,
        "label_parts": ("start", "end"),
    }


def _question_lengths(
    examples: QuestionExamples, tokenizer: Tokenizer, max_len: int, overlap: int
) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """Return question lengths, the indices of questions that fit, and counts of the others."""
    (lengths,) = in_parts(
        lambda chosen: (tokenizer.tokenize(tf.constant(examples.questions[chosen])).row_lengths(),),
        len(examples),
        TEXTS_TOGETHER,
    )
    fitting = np.flatnonzero(max_len - tokenizer.vocab.num_added(2) - lengths > overlap)
    if not len(fitting):
        raise ValueError(
            f"A question must leave more than overlap={overlap} tokens of max_len={max_len} for "
            f"its context. Received: questions of at least {lengths.min():,} tokens. Increase "
            "`max_len` or shorten the questions."
        )
    num_long = len(examples) - len(fitting)
    reason = f"question too long for max_len={max_len} and overlap={overlap}"
    return lengths, fitting, {reason: num_long} if num_long else {}


def _first_answer(examples: QuestionExamples, number: int) -> tuple[int, int]:
    answers = examples.answers[number] if examples.answers is not None else ()
    return (answers[0].start, answers[0].end) if answers else _NO_ANSWER


def _rows_of_windows(
    tokenizer: Tokenizer,
    max_len: int,
    overlap: int,
    questions: tf.Tensor,
    contexts: tf.Tensor,
    answers: tf.Tensor,
) -> tuple[tf.Tensor, ...]:
    """Return the rows of B questions; `answers (B, 2)` are character ranges of the contexts."""
    windows = tokenizer.windows(questions, contexts, max_len, overlap)
    spans = tokenizer.answer_spans(windows, answers[:, 0], answers[:, 1])
    labels = window_labels(spans, windows["rows"], answers[:, 0])
    return (*unpadded(windows), tf.stack([labels["start"], labels["end"]], 1), windows["rows"])


@functools.lru_cache(maxsize=4)
def _windows_graph(
    tokenizer: Tokenizer, max_len: int, overlap: int
) -> Callable[..., tuple[tf.Tensor, ...]]:
    texts, answers = tf.TensorSpec((None,), tf.string), tf.TensorSpec((None, 2), tf.int32)
    return tf.function(
        functools.partial(_rows_of_windows, tokenizer, max_len, overlap),
        input_signature=[texts, texts, answers],
    )
