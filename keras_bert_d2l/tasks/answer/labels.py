"""Conversion of answers to training labels of a `QuestionAnswerer`.

B questions in a batch, W windows of their contexts, T tokens.
"""

import functools
from collections.abc import Mapping

import numpy as np

from keras_bert_d2l.checks import IGNORED, is_integer, shown
from keras_bert_d2l.models.tasks.text_inputs import Batch
from keras_bert_d2l.types import Tensor

_ADDED = 3  # number of special tokens around a question and a context


def answer_tensors(answers: object) -> Tensor:
    """Convert the answers to questions to tensors.

    Args:
        answers: A list with one entry per question: `{"text": str, "start": int}`, the answer and
            the index of its first character in the context, or an object with these attributes;
            or a list of answers (only the first is used); or `None` or an empty list for no
            answer. Alternatively `{"text": ..., "start": ...}` with the texts and starts of
            all questions. Anything else, for example token positions, is returned unchanged.

    Returns: `{"text": (B,), "start": (B,)}`, strings and int32; `""` and 0 for no answer.

    Raises:
        ValueError: An answer has no text or no start.
    """
    import tensorflow as tf

    if isinstance(answers, Mapping) and answers.keys() == {"text", "start"}:
        texts, starts = answers["text"], answers["start"]
    elif isinstance(answers, list | tuple | np.ndarray):
        plain = [_plain(number, answer) for number, answer in enumerate(answers)]
        texts, starts = [text for text, _ in plain], [start for _, start in plain]
    else:
        return answers
    return {"text": tf.constant(texts, tf.string), "start": tf.constant(starts, tf.int32)}


def check_keys(texts: object) -> None:
    """Raise `ValueError` unless `texts` is a dictionary of questions and contexts."""
    if not isinstance(texts, Mapping) or texts.keys() != {"questions", "contexts"}:
        received = f"the keys {sorted(texts)}" if isinstance(texts, Mapping) else "no dictionary"
        raise ValueError(
            'A QuestionAnswerer takes strings as {"questions": [...], "contexts": [...]}. '
            f"Received: {received}."
        )


def check_examples(texts: Batch, answers: Tensor | None, lengths: Tensor, most: int) -> None:
    """Raise `ValueError` if in-memory examples are inconsistent.

    Args:
        texts: Questions and contexts, as tensors.
        answers: The answers, as tensors, or `None`.
        lengths: Number of tokens in each question, int `(B,)`.
        most: Maximum number of tokens in a question.
    """
    parts = dict(texts)
    if answers is not None:
        _check_answers(answers)
        parts["answers"] = answers["text"]
    sizes = {name: len(part) for name, part in parts.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(
            "There must be one context per question and, for training, one answer or None per "
            f"question. Received: {', '.join(f'{size} {name}' for name, size in sizes.items())}."
        )
    lengths = np.asarray(lengths)
    for number in np.flatnonzero(lengths > most)[:1]:
        raise ValueError(
            f"A question must have at most {most} tokens, so that each window contains more of the "
            f"context than its overlap with the next. Received: {lengths[number]} tokens in "
            f"question {number}. Shorten or remove it."
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
    import tensorflow as tf

    _check_answers(answers)
    message = "An answer must occur in its context, at the character given as its start."
    is_right = tf.debugging.Assert(tf.reduce_all(_occur_in(answers, contexts)), [message])
    with tf.control_dependencies([is_right]):
        lengths = _length(answers["text"])
    starts = tf.where(lengths > 0, tf.cast(answers["start"], tf.int32), -1)
    return starts, tf.where(lengths > 0, starts + lengths, -1)


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
    import tensorflow as tf

    found = tf.math.unsorted_segment_max(spans[:, 0], rows, tf.size(starts))
    is_lost = tf.gather((starts >= 0) & (found < 1), rows)
    spans = tf.where(is_lost[:, tf.newaxis], IGNORED, spans)
    return {"start": spans[:, 0], "end": spans[:, 1]}


def of_windows(values: tuple[Tensor, ...], rows: Tensor) -> tuple[Tensor, ...]:
    """Repeat per-question values for each window; `rows` contains each window's question index."""
    import tensorflow as tf

    return tuple(tf.gather(of_questions, rows) for of_questions in values)


def longest_question(max_len: int, overlap: int) -> int:
    """Return the maximum question length for which every window contains new context.

    Raises:
        ValueError: Even a one-token question does not fit.
    """
    most = max_len - _ADDED - overlap - 1
    if most < 1:
        raise ValueError(
            "`overlap` must leave space in each window for a question and new context: it must be "
            f"below {max_len - _ADDED - 1} for max_len={max_len}. Received: overlap={overlap}."
        )
    return most


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
    import tensorflow as tf

    starts = tf.cast(answers["start"], tf.int32)
    # `substr` fails for a position past the end.
    places = tf.clip_by_value(starts, 0, _length(contexts))
    lengths = _length(answers["text"])
    there = tf.strings.substr(contexts, places, lengths, unit="UTF8_CHAR")
    return (starts >= 0) & (there == answers["text"])


def _length(texts: Tensor) -> Tensor:
    import tensorflow as tf

    return tf.strings.length(texts, unit="UTF8_CHAR")


def _plain(number: int, answer: object) -> tuple[str, int]:
    if isinstance(answer, list | tuple | np.ndarray):
        first = answer[0] if len(answer) else None
    else:
        first = answer
    if first is None:
        return "", 0
    get = first.get if isinstance(first, Mapping) else functools.partial(getattr, first)
    text, start = get("text", None), get("start", None)
    if not isinstance(text, str) or not text.strip() or not is_integer(start):
        raise ValueError(
            'An answer must have a "text" and its "start", the index of its first character in the '
            f"context; None means no answer. Received: {shown(first)} as answer {number}."
        )
    return text, int(start)
