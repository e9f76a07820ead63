"""Questions with the windows of their contexts, and the labels that answers give these.

Training, prediction and exports use the same windows. N: examples, R: rows, B: questions in a
batch, W: windows of the contexts of a batch, T: tokens per window.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert_d2l.checks import IGNORED, shown
from keras_bert_d2l.contract.task import EncodingOptions
from keras_bert_d2l.data.tasks.rows import TEXTS_TOGETHER, Fields, in_parts, splits, unpadded
from keras_bert_d2l.models.text_inputs import Batch, Preprocessor, Texts
from keras_bert_d2l.tasks.answer.examples import QuestionExamples
from keras_bert_d2l.text.tokenizer.framing import (
    answer_spans,
    kept_tokens,
    require,
    sliding_windows,
)
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.types import Tensor

_QUESTIONS_TOGETHER = 128  # contexts are long, and their offsets take memory
_WORTH_A_GRAPH = 5_000  # questions; compiling takes seconds, but makes encoding five times as fast
_NO_ANSWER = (-1, -1)


class QuestionPreprocessor(Preprocessor):
    """Converts `{"questions": (B,), "contexts": (B,)}` to windows of at most 384 tokens.

    Args:
        model: The model.
        tokenizer: Converts strings to token ids.
        max_len: Maximum number of tokens in a window. `None`: as `model.window_sizes` says.
        overlap: Number of tokens that successive windows share. `None`: a third.
    """

    keys = ("questions", "contexts")
    form = '{"questions": [...], "contexts": [...]}'
    has_windows = True

    def __init__(
        self, model: Any, tokenizer: Any, max_len: int | None = None, overlap: int | None = None
    ) -> None:
        super().__init__(model, tokenizer, max_len)
        self._overlap = overlap

    @property
    def window_sizes(self) -> tuple[int, int]:
        """Number of tokens in a window, and number of tokens shared with the next window."""
        max_len = self._max_len or self.model.window_sizes[0]
        return max_len, max_len // 3 if self._overlap is None else self._overlap

    @property
    def longest_question(self) -> int:
        """Maximum number of tokens in a question, so that every window has new context.

        Raises:
            ValueError: Even a question of one token does not fit.
        """
        max_len, overlap = self.window_sizes
        room = max_len - self.tokenizer.vocab.num_added(2) - 1
        if (most := room - overlap) < 1:
            raise ValueError(
                "`overlap` must leave space in each window for a question and new context: it must "
                f"be below {room} for max_len={max_len}. Received: overlap={overlap}."
            )
        return most

    def checked(self, x: Any, y: Tensor | None = None) -> Texts:
        texts = super().checked(x)
        _check_examples(texts, y)
        self.check_questions(texts["questions"])
        return texts

    def check_questions(self, questions: Tensor) -> None:
        """Raise `ValueError` if a question is so long that a window has no new context."""
        lengths = self.tokenizer.tokenize(questions).row_lengths().numpy()
        most, (max_len, overlap) = self.longest_question, self.window_sizes
        for number in np.flatnonzero(lengths > most)[:1]:
            raise ValueError(
                f"A question must have at most {most} tokens, so that a window of {max_len} tokens "
                f"has space for more context than the {overlap} tokens it shares with the next "
                f"window. Received: {lengths[number]} tokens in question {number}; shorten it or "
                "remove it."
            )

    def rows(self, *texts: Any, **options: Any) -> Batch:
        """Return the windows of contexts, as `Tokenizer.windows` does, from questions and contexts.

        Questions that are too long are truncated; only exports answer these.

        Returns: also `truncated`, whether each question is, bool `(B,)`.
        """
        most, (max_len, overlap) = self.longest_question, self.window_sizes
        questions, contexts = texts
        pieces = self.tokenizer.with_offsets(questions)
        truncated = pieces["tokens"].row_lengths() > most
        side = self.tokenizer.truncation_side
        windows = sliding_windows(
            tuple(kept_tokens(piece, most, side) for piece in pieces.values()),
            tuple(self.tokenizer.with_offsets(contexts).values()),
            vocab=self.tokenizer.vocab,
            max_len=max_len,
            overlap=overlap,
        )
        longest = tf.reduce_max(tf.concat([windows["valid_lens"], [1]], axis=0))
        trimmed = {n: x[:, :longest] if x.shape.rank == 2 else x for n, x in windows.items()}
        return {**trimmed, "truncated": truncated}

    def _rows_of(self, texts: Texts) -> Batch:
        rows = super()._rows_of(texts)
        message = f"A question must have at most {self.longest_question} tokens. Shorten it."
        with tf.control_dependencies(require(~rows["truncated"], message)):
            return {**rows, "tokens": tf.identity(rows["tokens"])}

    def targets(
        self, texts: Texts, batch: Batch, labels: Tensor, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        starts, ends = character_spans(texts["contexts"], labels)
        spans = answer_spans(batch, starts, ends)
        labels = window_labels(spans, batch["rows"], starts)
        return labels, *(tf.gather(of_questions, batch["rows"]) for of_questions in weights)


def _check_examples(texts: Batch, answers: Tensor | None) -> None:
    """Raise `ValueError` if in-memory examples are inconsistent.

    Args:
        texts: Questions and contexts, as tensors.
        answers: The answers, as tensors, or `None`.
    """
    parts = dict(texts)
    if answers is not None:
        _check_answers(answers)
        parts |= {"answers": answers["text"], "starts": answers["start"]}
    sizes = {name: len(part) for name, part in parts.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(
            "There must be one context per question and, for training, one answer or None per "
            f"question. Received: {', '.join(f'{size} {name}' for name, size in sizes.items())}."
        )
    if answers is None:
        return
    for number in np.flatnonzero(~_occur_in(answers, texts["contexts"]).numpy())[:1]:
        text, start = answers["text"][number].numpy().decode(), int(answers["start"][number])
        context = texts["contexts"][number].numpy().decode(errors="replace")
        there = context[start : start + len(text)] if start >= 0 else ""
        raise ValueError(
            f"An answer must occur in its context. Received: {shown(text)} at character {start} of "
            f"context {number}, but the context has {shown(there)} there."
        )


def character_spans(contexts: Tensor, answers: Batch) -> tuple[Tensor, Tensor]:
    """Return the start and the exclusive end of each answer, in characters of its context.

    Both are int32 `(B,)`, with -1 for no answer. A TensorFlow assertion fails if the context does
    not contain the answer at its start.
    """
    _check_answers(answers)
    message = "An answer must occur in its context, at the character given as its start."
    is_right = tf.debugging.Assert(tf.reduce_all(_occur_in(answers, contexts)), [message])
    with tf.control_dependencies([is_right]):
        lengths = _length(answers["text"])
    starts = tf.where(lengths > 0, tf.cast(answers["start"], tf.int32), -1)
    return starts, tf.where(lengths > 0, starts + lengths, -1)


def _check_answers(answers: object) -> None:
    if not isinstance(answers, Mapping) or answers.keys() != {"text", "start"}:
        received = f"the keys {sorted(answers)}" if isinstance(answers, Mapping) else repr(answers)
        raise ValueError(
            'The answers must be a list with one {"text": ..., "start": ...} or None per question, '
            "or in a dataset a dictionary of two tensors with these keys. "
            f"Received: {received:.120}."
        )


def _occur_in(answers: Batch, contexts: Tensor) -> Tensor:
    """Return a mask `(B,)` of the answers that occur at their start in the context."""
    starts = tf.cast(answers["start"], tf.int32)
    # `substr` fails for a position past the end.
    places = tf.clip_by_value(starts, 0, _length(contexts))
    lengths = _length(answers["text"])
    there = tf.strings.substr(contexts, places, lengths, unit="UTF8_CHAR")
    return (starts >= 0) & (there == answers["text"])


def _length(texts: Tensor) -> Tensor:
    return tf.strings.length(texts, unit="UTF8_CHAR")


def window_labels(spans: Tensor, rows: Tensor, starts: Tensor) -> dict[str, Tensor]:
    """Convert answer spans to the labels of windows.

    Args:
        spans: Positions of the answer's first and last token in each window, int32 `(W, 2)`; both
            0, the start token, if the window does not contain the complete answer.
        rows: Index of each window's question, int32 `(W,)`.
        starts: Index of each answer's first character, int32 `(B,)`; -1 for no answer.

    Returns: `{"start": (W,), "end": (W,)}`, int32. They are `IGNORED` if no window of the context
        contains the complete answer, because such windows say nothing about the answer.
    """
    found = tf.math.unsorted_segment_max(spans[:, 0], rows, tf.size(starts))
    is_lost = tf.gather((starts >= 0) & (found < 1), rows)
    spans = tf.where(is_lost[:, tf.newaxis], IGNORED, spans)
    return {"start": spans[:, 0], "end": spans[:, 1]}


def encoded_questions(
    examples: QuestionExamples, tokenizer: Tokenizer, options: EncodingOptions
) -> Fields:
    """Encode questions with the windows of their contexts, one row per window."""
    max_len = options.max_len
    overlap = max_len // 3 if options.overlap is None else options.overlap
    question_lengths, fitting, dropped = _question_lengths(examples, tokenizer, max_len, overlap)
    arguments = (tokenizer, max_len, overlap)
    is_graph = len(fitting) > _WORTH_A_GRAPH
    rows_of = (
        _windows_graph(*arguments) if is_graph else functools.partial(_rows_of_windows, *arguments)
    )

    def in_part(chosen: slice) -> tuple[tf.Tensor, ...]:
        numbers = fitting[chosen]
        *of_rows, rows = rows_of(
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
    spans = answer_spans(windows, answers[:, 0], answers[:, 1])
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
