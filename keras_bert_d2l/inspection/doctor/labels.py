"""Checks of labeled data."""

from collections import Counter
from collections.abc import Hashable, Sequence

from keras_bert_d2l.inspection.doctor.finding import Finding


def unbalanced(counts: Counter[str]) -> Finding:
    """Return the share of the most frequent label of the training data.

    At 90%, a model that always answers this label has an accuracy of 0.9, and the loss of the
    others is a tenth of the whole.
    """
    return Finding(
        name="unbalanced labels",
        measures="share of the most frequent label in the training data",
        number=max(counts.values()) / counts.total(),
        high=0.9,
        severity="learns less",
        meaning="Always predicting the most frequent label is hard to beat.",
        remedy="Give rare labels a larger weight (`--class-weights LABEL=WEIGHT`), select the best "
        "epoch by `--monitor val_macro_f1`, or add examples.",
    )


def constant(labels: Sequence[Hashable], data: str) -> Finding:
    """Return the number of different labels or scores; with one, there is nothing to learn.

    Args:
        labels: The labels.
        data: Name of the data, such as `"training data"`.
    """
    return Finding(
        name=f"constant labels, {data}",
        measures=f"different labels in the {data}",
        number=len(set(labels)),
        low=2,
        severity="cannot learn",
        meaning=f"All examples of the {data} have the same label.",
        remedy="Check `--label`, and that the file is not sorted by label and cut off.",
    )


def leak(train: Sequence[Hashable], dev: Sequence[Hashable]) -> Finding:
    """Return the share of the development examples that are also training examples.

    Short texts repeat by chance; 5% of them raise the accuracy by up to 5 points.
    """
    known = set(train)
    return Finding(
        name="leaking examples",
        measures="share of the development examples that are also in the training data",
        number=sum(example in known for example in dev) / len(dev),
        high=0.05,
        severity="learns less",
        meaning="The metrics show what the model remembers, not what it has learned.",
        remedy="Remove them from the training data. Without `--dev`, equal texts are always in the "
        "same part.",
    )


def contradictions(examples: Sequence[Hashable], labels: Sequence[Hashable]) -> Finding:
    """Return the share of the training examples whose text also occurs with another label.

    Northcutt et al. 2021 find 3% wrong labels in ten test sets; 5% of contradictions alone are
    more than that.
    """
    labels_of: dict[Hashable, set[Hashable]] = {}
    for example, label in zip(examples, labels, strict=True):
        labels_of.setdefault(example, set()).add(label)
    return Finding(
        name="contradicting labels",
        measures="share of the training examples whose text also has another label",
        number=sum(len(labels_of[example]) > 1 for example in examples) / len(examples),
        high=0.05,
        severity="learns less",
        meaning="The same text has several labels, so no model can learn them.",
        remedy="Correct the labels, or check that texts and labels belong together.",
    )


def constant_predictions(warning: str | None) -> Finding:
    """Return 1 if the best model of a run predicts the same label for all development data."""
    return Finding(
        name="constant predictions",
        measures="the best epoch predicts one label only (1) or several (0)",
        number=float(warning is not None),
        high=0,
        severity="cannot learn",
        meaning="The model has learned which label is the most frequent one, and nothing else.",
        remedy="Try more epochs, another learning rate (`--lr-find`), or class weights.",
    )
