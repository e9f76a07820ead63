"""`calibrate`: fit the temperature of a model, and the thresholds of several labels.

n: number of decisions, C: number of labels.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import cast

import numpy as np

from keras_bert_d2l.checks import IGNORED, check_that, checked_max_len
from keras_bert_d2l.data.tasks.examples import TaskExamples
from keras_bert_d2l.data.tasks.readers.text_file import InMemory
from keras_bert_d2l.data.tasks.rows import TaskRows
from keras_bert_d2l.inference.decisions import Decisions
from keras_bert_d2l.inference.evaluation import as_examples, check_examples
from keras_bert_d2l.inference.prediction import Result, predict_batch
from keras_bert_d2l.models.tasks.task_model import CalibrationRow, TaskModel
from keras_bert_d2l.types import PathLike

LOWEST, HIGHEST = 0.1, 10.0  # temperatures
MIN_DECISIONS = 20  # to fit a temperature
MIN_POSITIVES = 10  # texts with a label, and without it, to fit its threshold
_STEPS = 32  # of the search, which leave 2e-7 of the interval
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclasses.dataclass(frozen=True, repr=False)
class Calibration(Result):
    """The result of `calibrate`.

    Attributes:
        temperature: The divisor of the logits.
        thresholds: With `multi_label`, the least probability of each label that a text has.
            Otherwise, `None`.
        before: The decisions with temperature 1.
        after: The decisions with a temperature that was fitted on the other half of the examples
            (two-fold cross-fitting), so that they show what to expect of new data.
        notes: What could not be fitted, in words.

    Example:

    ```python
    import keras_bert_d2l as kb

    before = kb.Decisions([0.99, 0.99], [True, False])
    after = kb.Decisions([0.6, 0.6], [True, False])
    kb.Calibration(3.2, None, before, after, notes=())
    ```
    """

    temperature: float
    thresholds: tuple[float, ...] | None
    before: Decisions
    after: Decisions
    notes: tuple[str, ...]


def calibrate(
    model: TaskModel,
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
    expected = "one with probabilities of labels or choices"
    is_right = isinstance(model, TaskModel) and bool(model.calibrated)
    check_that(is_right, "model", expected, model)
    examples = cast(TaskExamples, as_examples(model, examples))
    check_examples(model, examples)
    longest = model.max_row_len
    if examples.have_pairs_in_rows:
        longest = min(longest, model.bert_config.max_len)
    rows = TaskRows.encode(
        examples,
        model.tokenizer,
        labels=getattr(model, "labels", None),
        max_len=checked_max_len(max_len, 1, longest),
        model=model,
    )
    model.uncalibrate()
    found = [*_rows_of(model, rows, batch_size)]
    before = Decisions(*model.decisions(found))
    order = np.random.default_rng(0).permutation(len(found))
    halves = [[found[n] for n in half] for half in np.array_split(order, 2) if len(half)]
    parts = []
    for half, other in zip(halves, halves[::-1], strict=True):
        model.temperature = _fitted(model, half)[0]
        parts.append(model.decisions(other))
    after = Decisions(*map(np.concatenate, zip(*parts, strict=True)))
    model.temperature, note = _fitted(model, found)
    notes, thresholds = [note] if note else [], None
    if getattr(model, "multi_label", False):
        scores, has_label = (x.reshape(-1, len(model.labels)) for x in model.decisions(found))
        thresholds = tuple(map(best_threshold, scores.T, has_label.T))
        rare = [x for x, column in zip(model.labels, has_label.T, strict=True) if _is_rare(column)]
        if rare:
            notes.append(f"Threshold 0.5, for want of examples: {', '.join(rare):.200}.")
        model.thresholds = thresholds
    return Calibration(model.temperature, thresholds, before, after, tuple(notes))


def _rows_of(model: TaskModel, rows: TaskRows, batch_size: int) -> Iterator[CalibrationRow]:
    """Yield the logits and the labels of each row, without ignored tokens."""
    for features, labels in rows.batches(batch_size):
        of_rows = zip(predict_batch(model, features), labels.numpy(), strict=True)
        for logits, label in of_rows:
            if rows.has_token_labels:
                is_word = label != IGNORED
                yield logits[is_word], label[is_word]
            else:
                yield logits[None], label[None]


def _fitted(model: TaskModel, rows: list[CalibrationRow]) -> tuple[float, str]:
    """Return the temperature for some rows, and why it is 1 or at a limit, if it is."""
    model.temperature = 1.0
    confidence, is_right = model.decisions(rows)
    if getattr(model, "multi_label", False):
        is_right = is_right == (confidence >= 0.5)
    if len(is_right) < MIN_DECISIONS:
        return 1.0, f"Temperature 1, because there are fewer than {MIN_DECISIONS} decisions."
    if is_right.all():
        return 1.0, "Temperature 1, because all decisions are right, which no temperature improves."
    found = fit_temperature(model.negative_log_likelihood(rows))
    at_limit = min(abs(math.log(found / limit)) for limit in (LOWEST, HIGHEST)) < 1e-3
    return found, f"The temperature is at its limit, {found:.1f}." if at_limit else ""


def fit_temperature(loss: Callable[[float], float]) -> float:
    """Return the temperature from 0.1 to 10 that minimizes a loss, such as minus a log-likelihood.

    The loss must be convex in the inverse of the temperature, so that it has a single minimum. The
    search halves an interval of its logarithm by the golden section, without derivatives.
    """
    low, high = math.log(LOWEST), math.log(HIGHEST)
    for _ in range(_STEPS):
        width = _GOLDEN * (high - low)
        if loss(math.exp(high - width)) <= loss(math.exp(low + width)):
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
    if _is_rare(has_label):
        return 0.5
    order = np.argsort(scores)
    ordered, values = scores[order], np.unique(scores).astype("float64")
    candidates = np.append((np.append(0, values[:-1]) + values) / 2, 0.5)
    places = np.searchsorted(ordered, candidates)  # the texts from there on get the label
    right = np.append(np.cumsum(has_label[order][::-1])[::-1], 0)[places]
    f1 = 2 * right / (len(scores) - places + has_label.sum())
    best = candidates[f1 == f1.max()]
    return float(best[np.abs(best - 0.5).argmin()])


def _is_rare(has_label: np.ndarray) -> bool:
    return min(has_label.sum(), (~has_label).sum()) < MIN_POSITIVES
