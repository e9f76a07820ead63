"""`classify`: predict the labels of texts; their evaluation.

B: number of texts, T: tokens per row, C: number of labels.
"""

import dataclasses
import itertools
import warnings
from collections.abc import Sequence
from typing import Self, cast

import numpy as np

from keras_bert_d2l.contract.task import EvaluationOptions
from keras_bert_d2l.data.tasks.texts import TextExamples
from keras_bert_d2l.inference.evaluation import (
    Confusion,
    Evaluation,
    Mistake,
    evaluation_of,
    library,
    row_options,
)
from keras_bert_d2l.inference.prediction import (
    Result,
    Texts,
    asked_model,
    one_per_text,
    text_answers,
)
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.types import PathLike


@dataclasses.dataclass(frozen=True, repr=False)
class Classification(Result):
    """The predicted label, or labels, of a text.

    Attributes:
        label: The most likely label.
        score: The probability of this label.
        scores: The probability of every label. They need not add up to 1 if a text can have any
            number of labels.
        labels: The labels of the text: the most likely one or, if a text can have any number of
            labels, all labels with a probability of at least 0.5.

    Example:

    ```python
    import keras_bert_d2l as kb

    kb.Classification("good", 0.9, {"bad": 0.1, "good": 0.9}, labels=("good",))
    ```
    """

    label: str
    score: float
    scores: dict[str, float]
    labels: tuple[str, ...]

    @classmethod
    def of(
        cls, labels: Sequence[str], scores: Sequence[float], chosen: str | Sequence[bool]
    ) -> Self:
        """Return the result for probabilities in the order of the labels.

        Args:
            labels: The label names.
            scores: Their probabilities.
            chosen: The label of the text, or for each label whether the text has it.
        """
        best = int(np.argmax(scores))
        names = [chosen] if isinstance(chosen, str) else itertools.compress(labels, chosen)
        by_label = dict(zip(labels, scores, strict=True))
        return cls(labels[best], scores[best], by_label, tuple(names))


@one_per_text(Classification)
def classify(
    model: SequenceClassifier | PathLike,
    texts: str | Texts,
    texts_b: str | Texts | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    max_len: int | None = None,
    truncate: bool = True,
) -> Classification | list[Classification]:
    """Predict the label, or labels, of texts or pairs of texts.

    As in training, texts that are too long are truncated, at the end unless the tokenizer has
    `truncation_side="left"`. In a pair, the longer text is truncated first.

    Args:
        model: The classifier, or the path or the name of its checkpoint, which is loaded at each
            call.
        texts: A text, or several: a list, a tuple, a column of pandas, an array or a tensor of
            strings.
        texts_b: The second text of each pair. `None` means single texts. One text beside a list
            is repeated for each text of the list.
        tokenizer: The tokenizer. `None` means `model.tokenizer`.
        batch_size: Texts per batch.
        max_len: Maximum number of tokens in a row, T. `None` means the model's maximum.
        truncate: Whether to truncate texts that are too long; a warning reports how many. With
            `False`, they raise an error.

    Returns: one `Classification` per text, in the order of the texts; for a single text or
        pair, only its `Classification`.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The model belongs to a different task or has no tokenizer, `texts` and `texts_b`
            differ in length, one of them is not a text, a text is too long with `truncate=False`,
            or a number is out of range.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] what a film bore".split()))
    bert = kb.BERTModel(9, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    classifier = kb.SequenceClassifier(bert, ["bad", "good"], tokenizer=tokenizer)
    for found in kb.classify(classifier, ["what a film", "a bore"]):
        print(found.label, found.score)
    ```
    """
    model, tokenizer = asked_model(model, SequenceClassifier, tokenizer=tokenizer)
    answers = text_answers(model, tokenizer, texts, texts_b, batch_size, max_len, truncate)
    found = []
    for one in answers:
        chosen = one["is_label"] if model.multi_label else model.labels[one["id"]]
        found.append(Classification.of(model.labels, one["scores"], chosen))
    return found[0] if isinstance(texts, str) and isinstance(texts_b, str | None) else found


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
    """
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
    """
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
    found = classify(model, examples.texts, examples.texts_b, **row_options(options))
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
