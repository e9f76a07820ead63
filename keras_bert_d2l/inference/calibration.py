"""`calibrate`: fit the temperature of a model, and the thresholds of several labels.

n: number of decisions.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from keras_bert_d2l.checks import IGNORED, check_that, checked_max_len
from keras_bert_d2l.data.tasks.examples import TaskExamples
from keras_bert_d2l.data.tasks.readers.text_file import InMemory
from keras_bert_d2l.data.tasks.rows import TaskRows
from keras_bert_d2l.inference.decisions import Decisions
from keras_bert_d2l.inference.evaluation import as_examples, check_examples
from keras_bert_d2l.inference.prediction import predict_batch
from keras_bert_d2l.models.tasks.task_model import CalibrationRow
from keras_bert_d2l.types import PathLike

_GOLDEN = (math.sqrt(5) - 1) / 2  # the share of an interval that the next one has


class Calibration(NamedTuple):
    """The result of `calibrate`.

    Attributes:
        temperature: The divisor of the logits.
        thresholds: With `multi_label`, the least probability of each label that a text has.
            Otherwise, `None`.
        before: The decisions with temperature 1.
        after: The decisions with a temperature that was fitted on the other half of the examples
            (two-fold cross-fitting), so that they show what to expect of new data.

    Example:

    ```python
    import keras_bert_d2l as kb

    before = kb.Decisions.of([(0.99, True), (0.99, False)])
    after = kb.Decisions.of([(0.6, True), (0.6, False)])
    kb.Calibration(3.2, None, before, after)
    ```
    """

    temperature: float
    thresholds: tuple[float, ...] | None
    before: Decisions
    after: Decisions


def calibrate(
    model: Any,
    examples: TaskExamples | PathLike | InMemory,
    *,
    batch_size: int = 32,
    max_len: int | None = None,
) -> Calibration:
    """Fit the temperature of a model, so that its probabilities say how often it is right.

    Temperature scaling divides the logits by one number, which minimizes the negative
    log-likelihood of the labels. It does not change which label is the most likely. The model keeps
    the number as `model.temperature`, and all its probabilities use it: those of Python functions,
    exports and servers. Logits stay as they are. With `multi_label`, each label also gets the
    threshold with the best F1 in `model.thresholds`. `finetune` calibrates the best epoch.

    The temperature is between 0.1 and 10. It stays 1 if there are fewer than 20 decisions, or if
    all are right, because the best temperature would be 0. The threshold of a label stays 0.5 if
    fewer than 10 examples have the label or lack it, and if no other threshold has a better F1.

    Source: Guo et al. 2017 (On Calibration of Modern Neural Networks), section 4.2.

    Args:
        model: A model that predicts labels or choices, with its tokenizer. It must be trained.
        examples: Labeled examples that it was not trained on, in any form that `evaluate` takes.
        batch_size: Rows per batch.
        max_len: Maximum number of tokens in a row. `None` means the model's maximum.

    Returns: the temperature, the thresholds, and the decisions before and after.

    Raises:
        ValueError: The model has no probabilities to calibrate, there are no examples, they have no
            labels or belong to a different task, or a number is out of range.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a good bad film".split()))
    bert = kb.BERTModel(9, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    classifier = kb.SequenceClassifier(bert, ["bad", "good"], tokenizer=tokenizer)
    texts, labels = ["a good film", "a bad film"] * 10, ["good", "bad", "bad", "good"] * 5
    found = kb.calibrate(classifier, kb.TextExamples(texts=texts, labels=labels))
    print(found.temperature, found.before.calibration_error, found.after.calibration_error)
    ```
    """
    is_right = bool(getattr(model, "calibrated", False))
    check_that(is_right, "model", "a task model with probabilities of labels or choices", model)
    read: Any = as_examples(model, examples)
    check_examples(model, read)
    most = model.bert_config.max_len if read.have_pairs_in_rows else model.max_row_len
    names, max_len = getattr(model, "labels", None), checked_max_len(max_len, 1, most)
    rows = TaskRows.encode(read, model.tokenizer, labels=names, max_len=max_len)
    model.uncalibrate()
    found: list[CalibrationRow] = []
    for features, labels in rows.batches(batch_size).as_numpy_iterator():
        for logits, label in zip(predict_batch(model, features), labels, strict=True):
            kept = label != IGNORED if rows.has_token_labels else None  # `None` adds an axis
            found.append((logits[kept], label[kept]))
    before = Decisions(*model.decisions(found))
    order = np.random.default_rng(0).permutation(len(found))
    half, other = ([found[n] for n in order[start::2]] for start in (0, int(len(found) > 1)))
    parts = [_fitted(model, *halves) for halves in ((half, other), (other, half))][: len(found)]
    after = Decisions(*map(np.concatenate, zip(*parts, strict=True)))
    columns = _fitted(model, found, found)
    if getattr(model, "multi_label", False):
        scores, has_label = (x.reshape(-1, len(model.labels)).T for x in columns)
        model.thresholds = tuple(map(best_threshold, scores, has_label))
    return Calibration(model.temperature, getattr(model, "thresholds", None), before, after)


def _fitted(model: Any, rows: list[CalibrationRow], others: list[CalibrationRow]) -> CalibrationRow:
    """Set the temperature of a model for some rows, and return its decisions on others."""
    model.temperature = 1.0
    confidence, is_right = model.decisions(rows)
    if getattr(model, "multi_label", False):
        is_right = is_right == (confidence >= 0.5)
    if len(is_right) >= 20 and not is_right.all():
        model.temperature = fit_temperature(model.negative_log_likelihood(rows))
    decisions: CalibrationRow = model.decisions(others)
    return decisions


def fit_temperature(loss: Callable[[float], float]) -> float:
    """Return the temperature from 0.1 to 10 that minimizes a loss, such as minus a log-likelihood.

    The loss must be convex in the inverse of the temperature, so that it has a single minimum. The
    search narrows an interval of its logarithm by the golden section, without derivatives.
    """
    low, high = math.log(0.1), math.log(10)
    # One of the two places is also one of the next two, apart from rounding.
    at = functools.cache(lambda place: loss(math.exp(place)))
    for _ in range(32):  # which leave 1e-6 of it
        width = _GOLDEN * (high - low)
        if at(round(high - width, 9)) <= at(round(low + width, 9)):
            high = low + width
        else:
            low = high - width
    return math.exp((low + high) / 2)


def best_threshold(scores: np.ndarray, has_label: np.ndarray) -> float:
    """Return the threshold of a label with the best F1.

    It is 0.5 if no other has a better F1, and for fewer than 10 texts with or without the label.
    Otherwise, it is between two scores; of several, it is the nearest to 0.5.

    Args:
        scores: The probability that each text has the label, `(n,)`.
        has_label: Whether it has, bool `(n,)`.
    """
    if min(has_label.sum(), (~has_label).sum()) < 10:
        return 0.5
    order, values = np.argsort(scores), np.unique(scores).astype("float64")
    candidates = np.append((np.append(0, values[:-1]) + values) / 2, 0.5)
    places = np.searchsorted(scores[order], candidates)  # the texts from there on get the label
    right = np.append(np.cumsum(has_label[order][::-1])[::-1], 0)[places]
    f1 = 2 * right / (len(scores) - places + has_label.sum())
    best = candidates[f1 == f1.max()]
    return float(best[np.abs(best - 0.5).argmin()])
