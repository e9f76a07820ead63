"""Questions, contexts and the answers in them in, what a loss takes out.

B questions in a batch, W windows of their contexts, T tokens.
"""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

_ADDED = 3  # special tokens beside a question and a context


def answer_tensors(answers: Any) -> Any:
    """Returns the answers to questions as tensors.

    Args:
        answers: For each question `{"text": str, "start": int}`, the answer and its first
            character in the context, or an object with these attributes; or a sequence of them,
            of which the first is taken; or `None` or nothing for a question without an answer. Or
            `{"text": ..., "start": ...}` of all questions. What is none of these, and no list,
            tuple or array, is returned as it is.

    Returns: `{"text": (B,), "start": (B,)}`, strings and int32; `""` and 0 for no answer.

    Raises:
        ValueError: An answer has no text, or no start.
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


def check_keys(texts: Any) -> None:
    """Raises a `ValueError` unless `texts` are questions and contexts."""
    if not isinstance(texts, Mapping) or texts.keys() != {"questions", "contexts"}:
        received = f"the keys {sorted(texts)}" if isinstance(texts, Mapping) else "no dictionary"
        raise ValueError(
            'Strings for a QuestionAnswerer are {"questions": [...], "contexts": [...]}. '
            f"Received: {received}."
        )


def check_examples(texts: Mapping[str, Any], answers: Any, lengths: Any, most: int) -> None:
    """Raises a `ValueError` where examples in memory do not fit together.

    Args:
        texts: Questions and contexts, as tensors.
        answers: Their answers, as tensors, or `None`.
        lengths: Tokens of each question, int `(B,)`.
        most: How many tokens a question may have.
    """
    parts = dict(texts)
    if answers is not None:
        _check_answers(answers)
        parts["answers"] = answers["text"]
    sizes = {name: len(part) for name, part in parts.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(
            "There must be a context, and to learn from an answer or None, for each question. "
            f"Received: {', '.join(f'{size} {name}' for name, size in sizes.items())}."
        )
    lengths = np.asarray(lengths)
    for number in np.flatnonzero(lengths > most)[:1]:
        raise ValueError(
            f"A question must have at most {most} tokens, so that a window shows more of the "
            f"context than it shares with the next. Received: {lengths[number]} tokens in question "
            f"{number}; shorten it, or leave it out."
        )
    if answers is None:
        return
    for number in np.flatnonzero(~_stand_in(answers, texts["contexts"]).numpy())[:1]:
        text, start = answers["text"][number].numpy().decode(), int(answers["start"][number])
        context = texts["contexts"][number].numpy().decode(errors="replace")
        there = context[start : start + len(text)] if start >= 0 else ""
        raise ValueError(
            f"An answer must stand in its context. Received: {text!r:.60} at character {start} of "
            f"context {number}, where the context has {there!r:.60}."
        )


def character_spans(contexts: Any, answers: Any) -> tuple[Any, Any]:
    """Returns the first character of each answer in its context, and its last one plus one.

    Both int32 `(B,)`, and -1 for no answer. Fails in a graph where an answer is not in its place.
    """
    import tensorflow as tf

    _check_answers(answers)
    message = "An answer must stand in its context, at the character that is its start."
    is_right = tf.debugging.Assert(tf.reduce_all(_stand_in(answers, contexts)), [message])
    with tf.control_dependencies([is_right]):
        lengths = _length(answers["text"])
    starts = tf.where(lengths > 0, tf.cast(answers["start"], tf.int32), -1)
    return starts, tf.where(lengths > 0, starts + lengths, -1)


def window_labels(spans: Any, rows: Any, starts: Any, ignored: int) -> Any:
    """Returns the labels of windows.

    Args:
        spans: Positions of the answer's first and last token in each window, int32 `(W, 2)`; 0
            and 0, the start token, where the window does not hold the whole answer.
        rows: The question that each window is of, int32 `(W,)`.
        starts: First character of each answer, int32 `(B,)`; -1 for no answer.
        ignored: The label of the windows of a context none of which holds the whole answer: they
            say nothing about it.

    Returns: `{"start": (W,), "end": (W,)}`, int32.
    """
    import tensorflow as tf

    found = tf.math.unsorted_segment_max(spans[:, 0], rows, tf.size(starts))
    is_lost = tf.gather((starts >= 0) & (found < 1), rows)
    spans = tf.where(is_lost[:, tf.newaxis], ignored, spans)
    return {"start": spans[:, 0], "end": spans[:, 1]}


def of_windows(values: Any, rows: Any) -> Any:
    """Returns what belongs to questions for each of their windows, of which `rows` are theirs."""
    import tensorflow as tf

    return tf.nest.map_structure(lambda of_questions: tf.gather(of_questions, rows), values)


def longest_question(max_len: int, overlap: int) -> int:
    """Returns how many tokens leave a window more of the context than the overlap.

    Raises:
        ValueError: There would be none.
    """
    most = max_len - _ADDED - overlap - 1
    if most < 1:
        raise ValueError(
            "`overlap` must be so short that a window has room for a question and for more of the "
            f"context than it shares with the next: below {max_len - _ADDED - 1} for "
            f"max_len={max_len}. Received: overlap={overlap}."
        )
    return most


def _check_answers(answers: Any) -> None:
    if not isinstance(answers, Mapping) or answers.keys() != {"text", "start"}:
        received = f"the keys {sorted(answers)}" if isinstance(answers, Mapping) else repr(answers)
        raise ValueError(
            'The labels of questions that are strings are a list with {"text": ..., "start": ...} '
            "for each, or None for no answer; in a data set tensors by these two names. Received: "
            f"{received:.120}."
        )


def _stand_in(answers: Mapping[str, Any], contexts: Any) -> Any:
    """Returns whether answers stand at their places in their contexts, bool `(B,)`."""
    import tensorflow as tf

    starts = tf.cast(answers["start"], tf.int32)
    # Of a place behind the end there is no substring.
    places = tf.clip_by_value(starts, 0, _length(contexts))
    lengths = _length(answers["text"])
    there = tf.strings.substr(contexts, places, lengths, unit="UTF8_CHAR")
    return (starts >= 0) & (there == answers["text"])


def _length(texts: Any) -> Any:
    import tensorflow as tf

    return tf.strings.length(texts, unit="UTF8_CHAR")


def _plain(number: int, answer: Any) -> tuple[str, int]:
    several = isinstance(answer, list | tuple | np.ndarray)
    first = (answer[0] if len(answer) else None) if several else answer
    if first is None:
        return "", 0
    get = first.get if isinstance(first, Mapping) else functools.partial(getattr, first)
    text, start = get("text", None), get("start", None)
    is_int = isinstance(start, int | np.integer) and not isinstance(start, bool)
    if not isinstance(text, str) or not text.strip() or not is_int:
        raise ValueError(
            'An answer must have a "text" and its "start", the number of its first character in '
            f"the context; None stands for no answer. Received: {first!r:.80} as number {number}."
        )
    return text, int(start)
