"""Evaluate a classifier of texts: metrics, confusion matrix and most confident errors."""

import warnings
from collections.abc import Sequence
from typing import cast

import numpy as np

from keras_bert_d2l.data.tasks.examples import TextExamples
from keras_bert_d2l.inference.evaluation.checks import check_same_number, library
from keras_bert_d2l.inference.evaluation.evaluation import (
    Confusion,
    Evaluation,
    Mistake,
    evaluation_of,
)
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.tasks.classify.predictions import classify
from keras_bert_d2l.tasks.task import EvaluationOptions


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
    check_same_number(gold, predicted)
    metrics = library("sklearn.metrics")
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
    check_same_number(gold, predicted)
    metrics = library("sklearn.metrics")
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


def evaluate_labels(
    model: SequenceClassifier, examples: TextExamples, options: EvaluationOptions
) -> Evaluation:
    """Evaluate the labels of texts."""
    found = classify(
        model,
        examples.texts,
        examples.texts_b,
        batch_size=options["batch_size"],
        max_len=options["max_len"],
    )
    gold: tuple[tuple[str, ...], ...]
    confusion, mistakes = None, []
    if examples.multi_label:
        gold = cast("tuple[tuple[str, ...], ...]", examples.labels)
        metrics = multi_label_scores(gold, [one.labels for one in found], model.labels)
    else:
        names, predicted = cast("tuple[str, ...]", examples.labels), [one.label for one in found]
        gold = tuple((name,) for name in names)
        metrics = classification_scores(names, predicted, model.labels)
        confusion = Confusion.of(names, predicted, model.labels)
    for name, text, right, one in zip(examples.ids, examples.shown_texts, gold, found, strict=True):
        wrong = set(right) ^ set(one.labels)
        if wrong:
            confidences = [one.scores[x] if x in one.labels else 1 - one.scores[x] for x in wrong]
            confidence = max(confidences) if examples.multi_label else one.score
            listed = [", ".join(sorted(names)) for names in (right, one.labels)]
            mistakes.append(Mistake(name, text, listed[0], listed[1], confidence))
    return evaluation_of(examples, metrics, found, mistakes, confusion)
