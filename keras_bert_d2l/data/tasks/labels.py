"""Label names of a model, and label ids of examples.

N: examples, C: labels.
"""

from collections.abc import Sequence

import numpy as np

from keras_bert_d2l.checks import shown
from keras_bert_d2l.data.tasks.examples import Label, TaskExamples, how_many, names_of

_SHOWN = 12  # maximum number of labels in an error message


def check_label_names(
    examples: TaskExamples, labels: Sequence[str] | None, at_least: int
) -> tuple[str, ...]:
    """Return the label names of a model, after checking the examples against them.

    Args:
        examples: Examples with labels.
        labels: The names; by default those of the examples.
        at_least: The minimum number of names.

    Raises:
        ValueError: There are too few names, a name is repeated, or an example has an unknown
            label.
    """
    if labels is not None and not isinstance(labels, list | tuple):
        raise ValueError(f"`labels` must be a list of label names. Received: {shown(labels)}.")
    names = examples.label_names if labels is None else tuple(labels)
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"`labels` must be strings. Received: {shown(list(names))}.")
    source = f"{examples.source!r} has" if examples.source else "the examples have"
    if len(set(names)) < len(names):
        raise ValueError(f"`labels` must not contain duplicates. Received: {shown(list(names))}.")
    if len(names) < at_least:
        found = f"only one label, {names[0]!r}" if names else "none"
        raise ValueError(
            f"There must be at least {at_least} different labels. Received: {source} {found}. "
            "Check that this is the right column."
        )
    counts = examples.label_counts()
    unseen = sorted(set(counts) - set(names))
    if unseen:
        labels_of = getattr(examples, examples.sequences[-1])
        first = next(
            name
            for name, label in zip(examples.ids, labels_of, strict=True)
            if not set(unseen).isdisjoint(names_of(label))
        )
        remedy = "Train on examples of every label, or remove the unknown labels."
        if {name.lower() for name in unseen} <= {name.lower() for name in names}:
            remedy = "They differ only in case: use the same spelling in all files."
        raise ValueError(
            f"The model's labels are {_listed(names)}. Received: {source} {_listed(unseen)} as "
            f"well ({how_many(sum(counts[name] for name in unseen), 'time')}), first in example "
            f"{first!r}. {remedy}"
        )
    return names


def label_ids(examples: TaskExamples, names: Sequence[str]) -> np.ndarray:
    """Return the ids of the labels.

    Returns:
        int32 `(N,)`; for multi-label texts, multi-hot `(N, C)`; for words, the ids of the words of
        all texts, concatenated.
    """
    ids: dict[Label, int] = {name: number for number, name in enumerate(names)}
    labels = examples.label_values()
    if not getattr(examples, "multi_label", False):
        return np.array([ids[label] for label in labels], np.int32)
    multi_hot: np.ndarray = np.zeros((len(examples), len(names)), np.int32)
    for row, label in zip(multi_hot, labels, strict=True):
        row[[ids[name] for name in names_of(label)]] = 1
    return multi_hot


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:_SHOWN]))
    return shown + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")
