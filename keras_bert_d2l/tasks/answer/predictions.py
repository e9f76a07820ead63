"""`answer`: find the spans of texts that answer questions; the signature of exports.

B: number of questions, W: number of windows of all texts, T: tokens per window, L: maximum number
of tokens in an answer, k: maximum number of answers per question.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert_d2l.checkpoints.checks import tokenizer_of
from keras_bert_d2l.checks import check_integer, check_that, checked_max_len, is_number
from keras_bert_d2l.inference.prediction import (
    Result,
    Texts,
    asked_model,
    one_per_text,
    predict_rows,
    rows_of,
)
from keras_bert_d2l.progress import parts
from keras_bert_d2l.signatures.signature import (
    CONTEXT,
    QUESTION,
    Answer,
    ExportedModel,
    TextOptions,
    TextSignatures,
    checked_pairs,
)
from keras_bert_d2l.tasks.answer.model import QuestionAnswerer
from keras_bert_d2l.tasks.answer.rows import QuestionPreprocessor
from keras_bert_d2l.tasks.answer.spans import N_BEST, PLACES, best_answers, best_spans
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text_arguments import check_filled, text_list
from keras_bert_d2l.types import PathLike

MAX_ANSWER_LEN = 30  # tokens, of exports
_QUESTIONS_AT_ONCE = 512  # questions whose windows are in memory at the same time


@dataclasses.dataclass(frozen=True, repr=False)
class FoundAnswer(Result):
    """The answer to a question: a span of the context, or no answer.

    Attributes:
        text: `context[start:end]`; `""` for no answer.
        score: The probability among the 20 best answers, or the `top_k` best if that is more. With
            a threshold, these include "no answer".
        start: Index of the answer's first character in the context; 0 for no answer.
        end: Index after the answer's last character; 0 for no answer.
        logit: The start logit of the first token plus the end logit of the last token.
        null_logit: The no-answer logit, from the `[CLS]` token: the minimum over all windows.

    Example:

    ```python
    import keras_bert_d2l as kb

    kb.FoundAnswer("Ada Lovelace", score=0.97, start=18, end=30, logit=11.2, null_logit=-3.1)
    ```
    """

    text: str
    score: float
    start: int
    end: int
    logit: float
    null_logit: float

    @property
    def null_margin(self) -> float:
        """The no-answer logit minus the logit of this answer; compared with `null_threshold`."""
        return self.null_logit - self.logit


def checked_null_threshold(value: Any) -> float | None:
    """Return `null_threshold`, or raise `ValueError` unless it is a finite number or `None`."""
    if value is None:
        return None
    expected = "a finite number, or None to always give an answer"
    check_that(is_number(value) and math.isfinite(value), "null_threshold", expected, value)
    return float(value)


@one_per_text(list[FoundAnswer])
def answer(
    model: QuestionAnswerer | PathLike,
    questions: str | Texts,
    contexts: str | Texts,
    *,
    top_k: int = 1,
    max_answer_len: int = 30,
    max_len: int | None = None,
    overlap: int | None = None,
    null_threshold: float | None = None,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
) -> list[FoundAnswer] | list[list[FoundAnswer]]:
    """Find the answers to questions in texts.

    A context that is too long is split into overlapping windows. The logit of an answer is the sum
    of its start and end logits, in the window where that sum is largest. All spans of all windows
    compete; the source considers only the 20 best starts and the 20 best ends.

    Source: google-research/bert, `run_squad.py`.

    Args:
        model: The model, or the path or the name of its checkpoint, which is loaded at each call.
        questions: A question, or a list of questions.
        contexts: The text for each question, or one text for all questions.
        top_k: Maximum number of answers per question, k.
        max_answer_len: Maximum number of tokens in an answer, L.
        max_len: Maximum number of tokens in a window, T, including the question. `None` means 384,
            or the model's maximum if that is less.
        overlap: Number of tokens that successive windows share. `None` means a third of `max_len`,
            which is 128 for 384.
        null_threshold: Answer "none" when the no-answer logit exceeds the best answer's logit by
            more than this. `None` means that an answer is always returned. `evaluate` finds the
            best threshold.
        tokenizer: The tokenizer. `None` means `model.tokenizer`.
        batch_size: Windows per batch.

    Returns: for each question, a list of at most k `FoundAnswer`s, best first; for a single
        question string, only its list.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The model belongs to a different task or has no tokenizer, questions and
            contexts differ in length, one of them is empty, a question leaves no space for its
            context, or a number is out of range.

    Example:

    ```python
    import keras_bert_d2l as kb

    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] who wrote it ada did".split())
    tokenizer = kb.Tokenizer(vocab)
    bert = kb.BERTModel(10, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=32)
    reader = kb.QuestionAnswerer(bert, tokenizer=tokenizer)
    [best] = kb.answer(reader, "Who wrote it?", "Ada wrote it.")
    print(best.text, best.score)
    ```
    """
    model, tokenizer = asked_model(model, QuestionAnswerer, tokenizer=tokenizer)
    check_integer("top_k", top_k, 1)
    check_integer("max_answer_len", max_answer_len, 1)
    check_integer("batch_size", batch_size, 1)
    null_threshold = checked_null_threshold(null_threshold)
    asked, texts = text_list("questions", questions), text_list("contexts", contexts)
    if isinstance(contexts, str):
        texts *= len(asked)
    _check_texts(asked, texts)
    preprocess = _preprocessor(model, tokenizer, max_len, overlap)
    preprocess.check_questions(asked)
    num_best = max(top_k, N_BEST)
    options: dict[str, Any] = {"num_best": num_best, "top_k": top_k}
    options |= {"null_threshold": null_threshold, "has_spaces": tokenizer.vocab.kind != "wordpiece"}
    found: list[list[FoundAnswer]] = []
    for some in parts("Answering", len(asked), _QUESTIONS_AT_ONCE):
        tensors = preprocess.rows(asked[some], texts[some])
        windows = {name: values.numpy() for name, values in tensors.items()}
        features = {name: windows[name] for name in ("tokens", "segments", "valid_lens")}
        nulls = np.zeros(len(windows["rows"]), "float32")
        spans = []
        for numbers, logits in predict_rows(model, features, batch_size):
            nulls[numbers] = logits["start"][:, 0] + logits["end"][:, 0]
            batch = {name: windows[name][numbers] for name in ("segments", *PLACES)}
            best, window, *tokens = best_spans(batch, logits, max_answer_len, num_best)
            spans.append((best, tf.gather(numbers.astype("int32"), window), *tokens))
        candidates = [tf.concat(parts, axis=0) for parts in zip(*spans, strict=True)]
        places = {name: tensors[name] for name in PLACES}
        answers = best_answers(places, candidates, nulls, tf.constant(texts[some]), **options)
        rows = zip(texts[some], rows_of(answers), strict=True)
        found += [_found(context, row) for context, row in rows]
    return found[0] if isinstance(questions, str) else found


def _found(context: str, row: Mapping[str, Any]) -> list[FoundAnswer]:
    """Return the answers of a context, without the places of the row that are padding."""
    columns = (row[name] for name in ("scores", "starts", "ends", "logits"))
    return [
        FoundAnswer(context[start:end], score, start, end, logit, row["null"])
        for place, (score, start, end, logit) in enumerate(zip(*columns, strict=True))
        if start < end or place == 0
    ]


def fitting_questions(
    model: QuestionAnswerer,
    questions: Sequence[str],
    max_len: int | None = None,
    overlap: int | None = None,
) -> np.ndarray:
    """Return a bool mask of the questions that are short enough for `answer`.

    Args:
        model: The model, with its tokenizer.
        questions: The questions.
        max_len: As for `answer`.
        overlap: As for `answer`.
    """
    preprocess = _preprocessor(model, tokenizer_of(model), max_len, overlap)
    lengths = preprocess.tokenizer.tokenize(list(questions)).row_lengths().numpy()
    return lengths <= preprocess.longest_question


def _preprocessor(
    model: QuestionAnswerer, tokenizer: Tokenizer, max_len: int | None, overlap: int | None
) -> QuestionPreprocessor:
    if max_len is not None:
        max_len = checked_max_len(max_len, 6, model.max_row_len)
    if overlap is not None:
        check_integer("overlap", overlap, 0)
    return QuestionPreprocessor(model, tokenizer, max_len, overlap)


def _check_texts(questions: Sequence[str], contexts: Sequence[str]) -> None:
    if len(questions) != len(contexts):
        raise ValueError(
            "`contexts` must be one text per question, or one text for all questions. Received: "
            f"{len(questions)} questions and {len(contexts)} contexts."
        )
    check_filled("question", questions)
    check_filled("context", contexts)


class AnswererSignatures(TextSignatures):
    """Signatures of a `QuestionAnswerer`.

    The answers match `keras_bert_d2l.answer`: a context of any length is read in windows of at
    most 384 tokens that overlap by a third, and an answer has at most 30 tokens. A question that
    leaves no room for its context is truncated.

    Args:
        run: The model.
        tokenizer: The model's tokenizer.
        options: `top_k` is the number of answers per question, k. With a `null_threshold`, "no
            answer" is one of the candidates.

    Raises:
        ValueError: `top_k` is below 1.
    """

    specs = (QUESTION, CONTEXT)

    def __init__(self, run: ExportedModel, tokenizer: Tokenizer, options: TextOptions) -> None:
        super().__init__(run, tokenizer, options)
        self._top_k = options.top_k
        self._null_threshold = checked_null_threshold(options.null_threshold)
        check_integer("top_k", self._top_k, 1)
        self._num_best = max(self._top_k, N_BEST)

    def answer(self, *texts: tf.Tensor) -> Answer:
        """Return the answers to questions.

        Args:
            *texts: `question` and `context`, strings `(B,)`.

        Returns: the best answer, each `(B,)`: `answer`, strings, a part of the context; `score`,
            float32, its probability among the max(20, k) best answers (and "no answer" if there
            is a threshold); `start` and `end`, int32, the index of its first character in the
            context and the index after its last one; `null_score`, float32, the logit of "no
            answer" minus the logit of the best span of the context; and `truncated`, bool,
            whether the question was truncated.
            The k best answers, each `(B, k)`: `answers`, `scores`, `starts` and `ends`. "No
            answer" is the empty string from 0 to 0, with a score. If a context has fewer than k
            answers, its row is padded with empty strings and zeros.
        """
        question, context = checked_pairs(*texts)
        rows = self.preprocess.rows(question, context)
        windows = {**self.padded(rows), "rows": rows["rows"]}
        logits = self.in_steps(windows, "start", "end")
        spans = best_spans(windows, logits, MAX_ANSWER_LEN, self._num_best)
        nulls = logits["start"][:, 0] + logits["end"][:, 0]
        found = best_answers(
            {name: windows[name] for name in PLACES},
            spans,
            nulls,
            context,
            has_spaces=self.vocab.kind != "wordpiece",
            num_best=self._num_best,
            top_k=self._top_k,
            null_threshold=self._null_threshold,
        )
        margin = found["null"] - found["best"]
        answers = {name: found[name] for name in ("answers", "scores", "starts", "ends")}
        first = {name.removesuffix("s"): column[:, 0] for name, column in answers.items()}
        return {**answers, **first, "null_score": margin, "truncated": rows["truncated"]}
