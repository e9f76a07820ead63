"""Questions and texts in, the parts of the texts that answer them out.

W windows of all texts, T tokens of a window, L tokens of the longest answer, k answers.
"""

import dataclasses
import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from keras_bert_d2l.inference.batching import check_batch_size, predict_rows
from keras_bert_d2l.inference.tasks.labels import Texts, check_task, checked_max_len, softmax
from keras_bert_d2l.models.tasks import QuestionAnswerer
from keras_bert_d2l.models.tasks.answer_labels import longest_question
from keras_bert_d2l.text.tokenizer.offsets import behind_accents

N_BEST = 20  # answers among which probability is shared out: google-research/bert, run_squad.py
_QUESTIONS_AT_ONCE = 512  # of which the windows are held in memory


@dataclasses.dataclass(frozen=True)
class FoundAnswer:
    """A part of a text that answers a question, or the statement that there is none.

    Attributes:
        text: `context[start:end]`; `""` for no answer.
        score: Its probability among the best answers, 20 or `top_k` if that is more, no answer
            being one more where there is a threshold.
        start: The answer's first character in its context; 0 for no answer.
        end: Its last character plus one; 0 for no answer.
        logit: The logit of its first token as start plus that of its last as end.
        null_logit: The same for no answer: the start token's, the least of all windows.
    """

    text: str
    score: float
    start: int
    end: int
    logit: float
    null_logit: float

    @property
    def null_margin(self) -> float:
        """By how much no answer scores above this one; what a `null_threshold` is held against."""
        return self.null_logit - self.logit


@overload
def answer(
    model: QuestionAnswerer,
    questions: str,
    contexts: str,
    *,
    top_k: int = 1,
    max_answer_len: int = 30,
    max_len: int | None = None,
    overlap: int | None = None,
    null_threshold: float | None = None,
    batch_size: int = 32,
) -> list[FoundAnswer]: ...
@overload
def answer(
    model: QuestionAnswerer,
    questions: Texts,
    contexts: str | Texts,
    *,
    top_k: int = 1,
    max_answer_len: int = 30,
    max_len: int | None = None,
    overlap: int | None = None,
    null_threshold: float | None = None,
    batch_size: int = 32,
) -> list[list[FoundAnswer]]: ...
def answer(
    model: QuestionAnswerer,
    questions: str | Texts,
    contexts: str | Texts,
    *,
    top_k: int = 1,
    max_answer_len: int = 30,
    max_len: int | None = None,
    overlap: int | None = None,
    null_threshold: float | None = None,
    batch_size: int = 32,
) -> list[Any]:
    """Finds the answers to questions in texts.

    Source: google-research/bert, `run_squad.py`. A context that is too long is read in windows
    that overlap. An answer's score is the sum of two logits, of its start and of its end, in the
    window where that is largest; all windows of a context compete. Every pair of a start and an
    end is looked at, where the source takes those of the 20 best starts and ends.

    Args:
        model: The model, with its tokenizer.
        questions: A question, or a list of questions.
        contexts: The text of each question; or one text for all.
        top_k: Number of answers to each question, k.
        max_answer_len: Most tokens of an answer, L.
        max_len: Most tokens of a window, T, question included; `None`: 384, or what the model can
            read if that is less.
        overlap: Tokens that two successive windows of a context have in common; `None`: a third
            of `max_len`, which is 128 of 384.
        null_threshold: No answer comes first where its score is above that of the best answer by
            more than this; `None`: there always is an answer. `evaluate` finds a threshold.
        batch_size: Number of windows that pass through the model at once.

    Returns: for each question the list of its k `FoundAnswer`s, the best first (fewer if the
        context has fewer); for one question its own.

    Raises:
        ValueError: The model is that of another task or has no tokenizer, questions and contexts
            are not equally many, one of them is empty, a question leaves no room for its context,
            or a number is out of range.

    Example:

    ```python
    reader = load_pretrained("runs/squad/best").model
    [best] = answer(reader, "Who wrote it?", "It was written by Ada Lovelace in 1843.")
    print(best.text, best.score)
    ```
    """
    check_task(model, QuestionAnswerer)
    for name, number in (("top_k", top_k), ("max_answer_len", max_answer_len)):
        if number < 1:
            raise ValueError(f"`{name}` must be at least 1. Received: {name}={number!r}.")
    check_batch_size(batch_size)
    asked = [questions] if isinstance(questions, str) else list(questions)
    texts = [contexts] * len(asked) if isinstance(contexts, str) else list(contexts)
    _check_texts(asked, texts)
    max_len, overlap = _window_sizes(model, max_len, overlap)
    found: list[list[FoundAnswer]] = []
    for start in range(0, len(asked), _QUESTIONS_AT_ONCE):
        some = slice(start, start + _QUESTIONS_AT_ONCE)
        windows = _windows(model, asked[some], texts[some], max_len, overlap)
        best = _Candidates(texts[some], max(top_k, N_BEST))
        for numbers, logits in predict_rows(model, _features(windows), batch_size):
            batch = {name: values[numbers] for name, values in windows.items()}
            best.add(batch, logits, max_answer_len)
        found += [best.answers(row, top_k, null_threshold) for row in range(len(texts[some]))]
    return found[0] if isinstance(questions, str) else found


class _Candidates:
    """The best spans of each context so far, and its least score of no answer."""

    def __init__(self, contexts: Sequence[str], num_best: int) -> None:
        self._contexts = contexts
        self._num_best = num_best
        self._spans: list[dict[tuple[int, int], float]] = [{} for _ in contexts]
        self._null = [np.inf] * len(contexts)

    def add(
        self, windows: Mapping[str, np.ndarray], logits: Mapping[str, np.ndarray], max_len: int
    ) -> None:
        """Takes in the spans of at most `max_len` tokens of a batch of windows."""
        start_logits, end_logits = (logits[side].astype("float64") for side in ("start", "end"))
        length = start_logits.shape[1]
        is_context = (windows["segments"] == 1) & (windows["ends"] > windows["starts"])
        joint = joint_logits(start_logits, end_logits, is_context[:, :length], max_len)
        nulls = start_logits[:, 0] + end_logits[:, 0]
        for window, row in enumerate(windows["rows"].tolist()):
            self._null[row] = min(self._null[row], float(nulls[window]))
            spans = self._spans[row]
            for first, last, score in best_spans(joint[window], self._num_best):
                end = behind_accents(self._contexts[row], int(windows["ends"][window, last]))
                place = (int(windows["starts"][window, first]), end)
                spans[place] = max(score, spans.get(place, -np.inf))

    def answers(self, row: int, top_k: int, null_threshold: float | None) -> list[FoundAnswer]:
        """Returns the best answers of a context."""
        context, null = self._contexts[row], self._null[row]
        spans = heapq.nlargest(self._num_best, self._spans[row].items(), key=lambda item: item[1])
        if not spans:  # the context has no token, as a character without width
            return [FoundAnswer("", 0.0, 0, 0, null, null)]
        candidates = [(context[slice(*place)], *place, logit) for place, logit in spans]
        if null_threshold is not None:
            nothing = ("", 0, 0, null)
            if null - spans[0][1] > null_threshold:
                candidates.insert(0, nothing)
            else:
                candidates.append(nothing)  # it has a share of the probability
        scores = softmax(np.array([logit for *_, logit in candidates])).tolist()
        found = [
            FoundAnswer(text, score, start, end, logit, null)
            for (text, start, end, logit), score in zip(candidates, scores, strict=True)
        ]
        return [one for place, one in enumerate(found) if one.text or place == 0][:top_k]


def joint_logits(
    start_logits: np.ndarray, end_logits: np.ndarray, is_context: np.ndarray, max_answer_len: int
) -> np.ndarray:
    """Returns the scores of all spans that may be answers.

    Args:
        start_logits: Float `(W, T)`.
        end_logits: Float `(W, T)`.
        is_context: Whether a token is of the context, bool `(W, T)`.
        max_answer_len: L.

    Returns: float64 `(W, T, L)`: at `[w, t, n]` the score of the span of n + 1 tokens that begins
        with token t, minus infinity where it is not one of the context.
    """
    num_windows, length = start_logits.shape
    starts = np.where(is_context, start_logits, -np.inf)
    ends = np.where(is_context, end_logits, -np.inf)
    joint = np.full((num_windows, length, min(max_answer_len, length)), -np.inf)
    for more in range(joint.shape[2]):
        joint[:, : length - more, more] = starts[:, : length - more] + ends[:, more:]
    return joint


def best_spans(joint: np.ndarray, num_best: int) -> Iterator[tuple[int, int, float]]:
    """Yields the first token, the last token and the score of the best spans of a window.

    Args:
        joint: Scores `(T, L)`, as `joint_logits` returns them.
        num_best: How many; fewer where the window has fewer.
    """
    flat = joint.ravel()
    for place in np.argpartition(-flat, min(num_best, len(flat)) - 1)[:num_best].tolist():
        if np.isfinite(flat[place]):
            first, more = divmod(place, joint.shape[1])
            yield first, first + more, float(flat[place])


def fitting_questions(
    model: QuestionAnswerer,
    questions: Sequence[str],
    max_len: int | None = None,
    overlap: int | None = None,
) -> np.ndarray:
    """Returns which questions `answer` can read: bool, one for each.

    Args:
        model: The model, with its tokenizer.
        questions: The questions.
        max_len: As for `answer`.
        overlap: As for `answer`.
    """
    max_len, overlap = _window_sizes(model, max_len, overlap)
    return _num_tokens(model, questions) <= longest_question(max_len, overlap)


def _window_sizes(
    model: QuestionAnswerer, max_len: int | None, overlap: int | None
) -> tuple[int, int]:
    if max_len is None:
        max_len = model.window_sizes[0]
    max_len = checked_max_len(model, max_len, at_least=6)
    return max_len, max_len // 3 if overlap is None else overlap


def _num_tokens(model: QuestionAnswerer, texts: Sequence[str]) -> np.ndarray:
    return model.tokenizer.tokenize(list(texts)).row_lengths().numpy()


def _windows(
    model: QuestionAnswerer,
    questions: Sequence[str],
    contexts: Sequence[str],
    max_len: int,
    overlap: int,
) -> dict[str, np.ndarray]:
    lengths, most = _num_tokens(model, questions), longest_question(max_len, overlap)
    if lengths.max() > most:
        question = questions[int(lengths.argmax())]
        raise ValueError(
            f"A question must have at most {most} tokens, so that a window of {max_len} shows more "
            f"of the context than the {overlap} that it shares with the next. Received: "
            f"{lengths.max()} tokens in {question!r:.80}; shorten it, lower `overlap` or raise "
            "`max_len`."
        )
    windows = model.tokenizer.windows(questions, contexts, max_len, overlap)
    return {name: values.numpy() for name, values in windows.items()}


def _features(windows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: windows[name] for name in ("tokens", "segments", "valid_lens")}


def _check_texts(questions: Sequence[str], contexts: Sequence[str]) -> None:
    if len(questions) != len(contexts):
        raise ValueError(
            "There must be a context for each question, or one for all. Received: "
            f"{len(questions)} questions and {len(contexts)} contexts."
        )
    for name, texts in (("question", questions), ("context", contexts)):
        for number, text in enumerate(texts):
            if not text.strip():
                raise ValueError(f"A {name} must have text. Received: {text!r} as number {number}.")
