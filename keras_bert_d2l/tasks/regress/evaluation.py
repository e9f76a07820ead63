"""Evaluate scores of texts: correlations, errors and the largest of them."""

import warnings
from collections.abc import Sequence
from typing import cast

import numpy as np

from keras_bert_d2l.data.tasks.examples import TextExamples
from keras_bert_d2l.inference.evaluation.checks import check_same_number, library
from keras_bert_d2l.inference.evaluation.evaluation import (
    Evaluation,
    Mistake,
    evaluation_of,
)
from keras_bert_d2l.tasks.regress.model import SequenceRegressor
from keras_bert_d2l.tasks.regress.predictions import regress
from keras_bert_d2l.tasks.task import EvaluationOptions


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
    check_same_number(gold, predicted)
    stats = library("scipy.stats")
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


def evaluate_scores(
    model: SequenceRegressor, examples: TextExamples, options: EvaluationOptions
) -> Evaluation:
    """Evaluate the scores of texts."""
    found = regress(
        model,
        examples.texts,
        examples.texts_b,
        batch_size=options["batch_size"],
        max_len=options["max_len"],
    )
    gold = cast("tuple[float, ...]", examples.labels)
    mistakes = [
        Mistake(name, text, f"{score:g}", f"{one.score:.4g}", abs(one.score - score))
        for name, text, score, one in zip(
            examples.ids, examples.shown_texts, gold, found, strict=True
        )
        if one.score != score
    ]
    metrics = regression_scores(gold, [one.score for one in found])
    return evaluation_of(examples, metrics, found, mistakes)
