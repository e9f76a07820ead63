"""Task metrics, which compare predicted labels, scores, tags or answers with gold values.

All metrics are fractions from 0 to 1 (other programs print percentages), except for the squared
error, and for correlations and the Matthews coefficient, which range from -1 to 1.
"""

import collections
import importlib
import re
import string
import types
import warnings
from collections.abc import Sequence

import numpy as np

from keras_bert_d2l.inference.tasks.entities import has_scheme, span_scores

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")

# The library that the metrics of a task need. Question answering needs none.
_LIBRARIES = {
    "classify": "sklearn.metrics",
    "tag": "sklearn.metrics",
    "regress": "scipy.stats",
    "embed": "scipy.stats",
}


def classification_scores(
    gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]
) -> dict[str, float]:
    """Return the metrics for texts with one label each.

    Args:
        gold: The correct label of each text.
        predicted: The predicted label of each text.
        labels: The labels of the model, in the order of their ids.

    Returns: `accuracy`; `macro_f1`, the mean F1 of the labels that occur in either sequence;
        `matthews`, the correlation coefficient; and, if there are two labels, `f1` of the second.

    Raises:
        ImportError: scikit-learn is not installed.
        ValueError: The sequences are empty or differ in length.
    """
    _check_lengths(gold, predicted)
    metrics = library("classify")
    gold, predicted = list(gold), list(predicted)
    with warnings.catch_warnings():  # about a single label, whose Matthews coefficient is 0
        warnings.simplefilter("ignore")
        scores = {
            "accuracy": metrics.accuracy_score(gold, predicted),
            "macro_f1": metrics.f1_score(gold, predicted, average="macro", zero_division=0.0),
            "matthews": metrics.matthews_corrcoef(gold, predicted),
        }
        if len(labels) == 2:
            scores["f1"] = metrics.f1_score(
                gold, predicted, labels=labels[1:], average="macro", zero_division=0.0
            )
    return {name: float(score) for name, score in scores.items()}


def multi_label_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], labels: Sequence[str]
) -> dict[str, float]:
    """Return the metrics for texts with any number of labels.

    Args:
        gold: The correct labels of each text.
        predicted: The predicted labels of each text.
        labels: The labels of the model.

    Returns: `subset_accuracy`, the share of texts whose labels are all correct; `micro_f1`, F1
        over all decisions; `macro_f1`, the mean F1 of all labels (0 for unused ones).

    Raises:
        ImportError: scikit-learn is not installed.
        ValueError: The sequences are empty or differ in length.
    """
    _check_lengths(gold, predicted)
    metrics = library("classify")
    decisions = [
        np.array([[label in row for label in labels] for row in map(set, rows)], "int32")
        for rows in (gold, predicted)
    ]
    # With a single column, scikit-learn would treat the label and its absence as two classes.
    options = {"labels": [1] if len(labels) == 1 else None, "zero_division": 0.0}
    scores = {
        "subset_accuracy": (decisions[0] == decisions[1]).all(axis=1).mean(),
        "micro_f1": metrics.f1_score(*decisions, average="micro", **options),
        "macro_f1": metrics.f1_score(*decisions, average="macro", **options),
    }
    return {name: float(score) for name, score in scores.items()}


def regression_scores(gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """Return the metrics for texts with scores.

    Args:
        gold: The correct score of each text.
        predicted: The predicted score of each text.

    Returns: `pearson` and `spearman`, the correlations of values and of ranks, which are 0 if
        either sequence is constant; and `mean_squared_error`.

    Raises:
        ImportError: scipy is not installed.
        ValueError: The sequences are empty or differ in length, or a score is not finite.
    """
    _check_lengths(gold, predicted)
    stats = library("regress")
    of_gold, of_predicted = np.asarray(gold, "float64"), np.asarray(predicted, "float64")
    for name, values in (("gold", of_gold), ("predicted", of_predicted)):
        for place in np.flatnonzero(~np.isfinite(values))[:1]:
            raise ValueError(
                f"`{name}` must contain finite numbers. Received: {values[place]} at index {place}."
            )
    scores = {"pearson": 0.0, "spearman": 0.0}
    if min(np.ptp(of_gold), np.ptp(of_predicted)) > 0:
        with warnings.catch_warnings():  # about values that are almost constant
            warnings.simplefilter("ignore")
            scores["pearson"] = float(stats.pearsonr(of_gold, of_predicted).statistic)
            scores["spearman"] = float(stats.spearmanr(of_gold, of_predicted).statistic)
    return {**scores, "mean_squared_error": float(np.square(of_gold - of_predicted).mean())}


def retrieval_scores(ranks: Sequence[int]) -> dict[str, float]:
    """Return the metrics of a search.

    Args:
        ranks: The rank of the correct text of each query among all candidates, from 1.

    Returns: `recall@1` and `recall@10`, the share of correct texts among the first 1 and 10; and
        `mean_reciprocal_rank`.
    """
    found = np.asarray(ranks)
    metrics = {f"recall@{k}": float((found <= k).mean()) for k in (1, 10)}
    return {**metrics, "mean_reciprocal_rank": float((1 / found).mean())}


def tagging_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], labels: Sequence[str]
) -> dict[str, float]:
    """Return the metrics for texts with tagged words.

    Args:
        gold: The correct tags of each text's words.
        predicted: The predicted tags, with the same lengths.
        labels: The labels of the model. They determine whether tags mark spans (`B-PER`, `I-PER`,
            `O`) or single words (`NOUN`).

    Returns: `accuracy` over all words; if tags mark spans, also `precision`, `recall` and `f1` of
        the spans, as seqeval computes them by default.

    Raises:
        ImportError: scikit-learn is not installed.
        ValueError: The sequences are empty or differ in length.
    """
    _check_lengths(gold, predicted)
    for number, (wanted, found) in enumerate(zip(gold, predicted, strict=True)):
        if len(wanted) != len(found):
            raise ValueError(
                f"Every word must have one tag. Received: {len(wanted)} gold and {len(found)} "
                f"predicted tags for text {number}."
            )
    of_gold, of_predicted = ([tag for tags in texts for tag in tags] for texts in (gold, predicted))
    if not of_gold:
        raise ValueError("There must be at least one word. Received: texts without words.")
    scores = {"accuracy": float(library("tag").accuracy_score(of_gold, of_predicted))}
    return {**scores, **span_scores(gold, predicted)} if has_scheme(labels) else scores


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

    Raises:
        ValueError: The sequences are empty or differ in length.
    """
    _check_lengths(gold, predicted)
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

    Raises:
        ValueError: The sequences are empty or differ in length.
    """
    _check_lengths(gold, predicted)
    _check_lengths(gold, null_margins)
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


def _check_lengths(gold: Sequence[object], predicted: Sequence[object]) -> None:
    if not len(gold) or len(gold) != len(predicted):
        raise ValueError(
            "There must be the same number of predictions and gold values, and at least one. "
            f"Received: {len(gold)} gold values and {len(predicted)} predictions."
        )


def check_libraries(task: str) -> None:
    """Raise `ImportError` if the library for the metrics of a task is not installed."""
    if task in _LIBRARIES:
        library(task)


def library(task: str) -> types.ModuleType:
    """Import the library for the metrics of a task on first use."""
    try:
        return importlib.import_module(_LIBRARIES[task])
    except ImportError as error:
        raise ImportError(
            "Task metrics require scikit-learn and scipy: "
            f'`pip install "keras-bert-d2l[tasks]"`. The import failed: {error}'
        ) from error
