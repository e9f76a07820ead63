"""Evaluate answers as the official script of SQuAD 2.0 does."""

import collections
import re
import string
import sys
from collections.abc import Sequence

import numpy as np

from keras_bert_d2l.contract.task import Options
from keras_bert_d2l.inference.evaluation import Evaluation, evaluation_of
from keras_bert_d2l.tasks.answer.examples import QuestionExamples
from keras_bert_d2l.tasks.answer.model import QuestionAnswerer
from keras_bert_d2l.tasks.answer.predictions import (
    FoundAnswer,
    answer,
    checked_null_threshold,
    fitting_questions,
)

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def answer_scores(gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> dict[str, float]:
    """Return the metrics for answers, as computed by the official script of SQuAD 2.0.

    Source: Rajpurkar et al. 2016 and 2018 (SQuAD). The script of SQuAD 1.1 differs only for gold
    answers that normalization leaves empty, such as ".".

    Args:
        gold: The correct answers to each question, any of which is accepted. An empty list means
            that the context has no answer.
        predicted: The answer to each question, or `""` for no answer.

    Returns: `exact_match` and `f1` (the word F1 with the closest gold answer). If some questions
        have no answer, also `has_answer_exact_match`, `has_answer_f1` and `no_answer_accuracy` for
        the two kinds of questions.
    """
    pairs = list(zip(gold, predicted, strict=True))
    exact = np.array([exact_match(*pair) for pair in pairs])
    f1 = np.array([answer_f1(*pair) for pair in pairs])
    answerable = np.array([bool(answers) for answers in gold])
    scores = {"exact_match": float(exact.mean()), "f1": float(f1.mean())}
    if answerable.any() and not answerable.all():
        scores["has_answer_exact_match"] = float(exact[answerable].mean())
        scores["has_answer_f1"] = float(f1[answerable].mean())
    if not answerable.all():
        scores["no_answer_accuracy"] = float(exact[~answerable].mean())
    return scores


def exact_match(gold: Sequence[str], predicted: str) -> float:
    """Return 1 if an answer, after normalization, is one of the gold answers, otherwise 0."""
    return float(normalized_answer(predicted) in _normalized_gold(gold))


def answer_f1(gold: Sequence[str], predicted: str) -> float:
    """Return the word F1 of an answer with the closest gold answer."""
    words = normalized_answer(predicted).split()
    return max(_word_f1(answer.split(), words) for answer in _normalized_gold(gold))


def normalized_answer(text: str) -> str:
    """Return an answer in lowercase, without ASCII punctuation, articles and extra spaces."""
    without_punctuation = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", without_punctuation).split())


def best_null_threshold(
    gold: Sequence[Sequence[str]], predicted: Sequence[str], null_margins: Sequence[float]
) -> float:
    """Return the no-answer threshold with the best F1.

    Source: the official script of SQuAD 2.0, which calls it `best_f1_thresh`. That script may
    treat questions with equal margins differently; here either all or none of them are answered.

    Args:
        gold: The correct answers to each question; an empty list if the context has no answer.
        predicted: The best answer to each question, excluding `""`.
        null_margins: For each question, the no-answer logit minus the logit of the best answer.

    Returns: one of the margins. Questions with a larger margin should be left unanswered. If all
        questions should be left unanswered, the smallest margin minus 1.
    """
    margins = np.asarray(null_margins, "float64")
    answered = np.array([answer_f1(*pair) for pair in zip(gold, predicted, strict=True)])
    left = np.array([answer_f1(answers, "") for answers in gold])
    order = np.argsort(margins, kind="stable")
    # gains[i]: increase in total F1 from answering the i + 1 questions with the smallest margins.
    gains, ordered = np.cumsum((answered - left)[order]), margins[order]
    is_last_of_equals = np.append(ordered[1:] > ordered[:-1], True)
    gains = np.where(is_last_of_equals, gains, -np.inf)
    best = int(np.argmax(gains))
    return float(ordered[best] if gains[best] > 0 else ordered[0] - 1)


def _normalized_gold(gold: Sequence[str]) -> list[str]:
    """Return the normalized gold answers that are not empty, or `""` if there are none."""
    return [text for text in map(normalized_answer, gold) if text] or [""]


def _word_f1(gold: list[str], predicted: list[str]) -> float:
    if not gold or not predicted:
        return float(gold == predicted)
    shared = collections.Counter(gold) & collections.Counter(predicted)
    return 2 * shared.total() / (len(gold) + len(predicted))


def evaluate_answers(
    model: QuestionAnswerer, examples: QuestionExamples, options: Options
) -> Evaluation:
    """Evaluate answers; without a threshold for "no answer", with the best one."""
    asking = {**options, "null_threshold": None}
    null_threshold = checked_null_threshold(options["null_threshold"])
    gold = [[one.text for one in answers] for answers in examples.answers or ()]
    fits = fitting_questions(model, examples.questions, options["max_len"], options["overlap"])
    # If no question fits, `answer` raises the error.
    read = np.flatnonzero(fits) if fits.any() else np.arange(len(examples))
    answered, threshold = _answers(
        model, examples.subset(read), [gold[row] for row in read], null_threshold, asking
    )
    found = [FoundAnswer("", 0.0, 0, 0, 0.0, 0.0)] * len(examples)
    for row, one in zip(read.tolist(), answered, strict=True):
        found[row] = one
    metrics = answer_scores(gold, [one.text for one in found])
    if threshold is not None:
        metrics["null_threshold"] = threshold
    if len(read) < len(examples):
        metrics["unread_questions"] = float(len(examples) - len(read))
    return evaluation_of(examples, metrics, found)


def _answers(
    model: QuestionAnswerer,
    examples: QuestionExamples,
    gold: list[list[str]],
    null_threshold: float | None,
    options: Options,
) -> tuple[list[FoundAnswer], float | None]:
    """Return the answer to each question, and the no-answer threshold if there is one."""
    asked, contexts = examples.questions, examples.contexts
    if null_threshold is None and all(gold):
        return [best for [best] in answer(model, asked, contexts, **options)], None
    # With this threshold, the first result is "no answer" and the second is the best answer.
    options = {**options, "top_k": 2, "null_threshold": -sys.float_info.max}
    pairs = answer(model, asked, contexts, **options)
    # A context without tokens has only "no answer".
    margins = [results[-1].null_margin for results in pairs]
    if null_threshold is None:
        best = [results[-1].text for results in pairs]
        null_threshold = best_null_threshold(gold, best, margins)
    found = [
        results[0] if margin > null_threshold else results[-1]
        for results, margin in zip(pairs, margins, strict=True)
    ]
    return found, null_threshold
