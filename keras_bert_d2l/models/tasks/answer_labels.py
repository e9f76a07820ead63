"""Answers to questions, as the labels that a `QuestionAnswerer` learns.

B questions in a batch, W windows of their contexts, T tokens.
"""

import functools
from collections.abc import Mapping

import numpy as np

from keras_bert_d2l.models.tasks.string_inputs import IGNORED, Batch
from keras_bert_d2l.types import Tensor

_ADDED = 3  # special tokens around a question and a context


def answer_tensors(answers: object) -> Tensor:
    """Return the answers to questions as tensors.

    Args:
        answers: A list with one entry per question: `{"text": str, "start": int}`, the answer and
            its first character in the context, or an object with these attributes; or a list of
            answers, whose first one is used; or `None` or an empty list for no answer.
            Alternatively `{"text": ..., "start": ...}` with columns for all questions. Anything
            else, for example positions of tokens, is returned unchanged.

    Returns: `{"text": (B,), "start": (B,)}`, strings and int32; `""` and 0 for no answer.

    Raises:
        ValueError: An answer lacks its text or its start.
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
    """Raise a `ValueError` unless `texts` are questions and contexts."""
    if not isinstance(texts, Mapping) or texts.keys() != {"questions", "contexts"}:
        received = f"the keys {sorted(texts)}" if isinstance(texts, Mapping) else "no dictionary"
        raise ValueError(
            'Strings for a QuestionAnswerer are {"questions": [...], "contexts": [...]}. '
            f"Received: {received}."
        )


def check_examples(texts: Batch, answers: Tensor | None, lengths: Tensor, most: int) -> None:
    """Raise a `ValueError` if examples in memory contradict each other.

    Args:
        texts: Questions and contexts, as tensors.
        answers: Their answers, as tensors, or `None`.
        lengths: Number of tokens in each question, int `(B,)`.
        most: Largest number of tokens that a question may have.
    """
    parts = dict(texts)
    if answers is not None:
        _check_answers(answers)
        parts["answers"] = answers["text"]
    sizes = {name: len(part) for name, part in parts.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(
            "There must be one context per question, and for training one answer or None. "
            f"Received: {', '.join(f'{size} {name}' for name, size in sizes.items())}."
        )
    lengths = np.asarray(lengths)
    for number in np.flatnonzero(lengths > most)[:1]:
        raise ValueError(
            f"A question must have at most {most} tokens, so that a window shows more of the "
            f"context than it shares with the next. Received: {lengths[number]} tokens in question "
            f"{number}; shorten or remove it."
        )
    if answers is None:
        return
    for number in np.flatnonzero(~_occur_in(answers, texts["contexts"]).numpy())[:1]:
        text, start = answers["text"][number].numpy().decode(), int(answers["start"][number])
        context = texts["contexts"][number].numpy().decode(errors="replace")
        there = context[start : start + len(text)] if start >= 0 else ""
        raise ValueError(
            f"An answer must occur in its context. Received: {text!r:.60} at character {start} of "
            f"context {number}, where the context has {there!r:.60}."
        )


def character_spans(contexts: Tensor, answers: Batch) -> tuple[Tensor, Tensor]:
    """Return where each answer starts and ends in its context, in characters.

    Both are int32 `(B,)`, the end is exclusive, and -1 stands for no answer. A TensorFlow
    assertion fails if the context has no such text there.
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
    """Return the labels of windows.

    Args:
        spans: Positions of the answer's first and last token in each window, int32 `(W, 2)`; 0
            and 0, the start token, if the window does not hold the whole answer.
        rows: Number of each window's question, int32 `(W,)`.
        starts: First character of each answer, int32 `(B,)`; -1 for no answer.

    Returns: `{"start": (W,), "end": (W,)}`, int32. They are `IGNORED` if no window of the context
        holds the whole answer, because such windows teach nothing about it.
    """
    import tensorflow as tf

    found = tf.math.unsorted_segment_max(spans[:, 0], rows, tf.size(starts))
    is_lost = tf.gather((starts >= 0) & (found < 1), rows)
    spans = tf.where(is_lost[:, tf.newaxis], IGNORED, spans)
    return {"start": spans[:, 0], "end": spans[:, 1]}


def of_windows(values: tuple[Tensor, ...], rows: Tensor) -> tuple[Tensor, ...]:
    """Return, for each window, the values of its question; `rows` holds the question's number."""
    import tensorflow as tf

    return tuple(tf.gather(of_questions, rows) for of_questions in values)


def longest_question(max_len: int, overlap: int) -> int:
    """Return how many tokens a question may have, so that every window shows new context.

    Raises:
        ValueError: Not even a question of one token would fit.
    """
    most = max_len - _ADDED - overlap - 1
    if most < 1:
        raise ValueError(
            "`overlap` must be short enough for a window to hold a question and more of the "
            f"context than it shares with the next: below {max_len - _ADDED - 1} for "
            f"max_len={max_len}. Received: overlap={overlap}."
        )
    return most


def _check_answers(answers: object) -> None:
    if not isinstance(answers, Mapping) or answers.keys() != {"text", "start"}:
        received = f"the keys {sorted(answers)}" if isinstance(answers, Mapping) else repr(answers)
        raise ValueError(
            "The answers to questions must be a list with "
            '{"text": ..., "start": ...} or None for each question; in a dataset, a dictionary of '
            f"two tensors with these names. Received: {received:.120}."
        )


def _occur_in(answers: Batch, contexts: Tensor) -> Tensor:
    """Return whether each answer occurs at its place in its context, bool `(B,)`."""
    import tensorflow as tf

    starts = tf.cast(answers["start"], tf.int32)
    # `substr` fails for a place past the end.
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
    is_int = isinstance(start, int | np.integer) and not isinstance(start, bool)
    if not isinstance(text, str) or not text.strip() or not is_int:
        raise ValueError(
            'An answer must have a "text" and its "start", the position of its first character in '
            f"the context; None means no answer. Received: {first!r:.80} as number {number}."
        )
    return text, int(start)
