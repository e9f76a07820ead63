"""Examples with the names of their labels in, label ids out.

N: examples, C: labels.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from keras_bert_d2l.data.tasks.examples import TextExamples, WordExamples, how_many


def check_label_names(
    examples: TextExamples | WordExamples, labels: Sequence[str] | None, at_least: int
) -> tuple[str, ...]:
    """Returns the labels of a model for these examples.

    Args:
        examples: Examples with labels.
        labels: The names; None: those of the examples.
        at_least: How many there have to be.

    Raises:
        ValueError: They are too few, not different, or an example has another one.
    """
    names = examples.label_names if labels is None else tuple(labels)
    source = f"{examples.source!r} has" if examples.source else "the examples have"
    if len(set(names)) < len(names):
        raise ValueError(f"`labels` must be different names. Received: {list(names)!r:.120}.")
    if len(names) < at_least:
        raise ValueError(
            f"There must be at least {at_least} different labels to tell apart. Received: {source} "
            f"{'none' if not names else f'one label only, {names[0]!r}'}. Is it the right column?"
        )
    counts = examples.label_counts()
    unseen = sorted(set(counts) - set(names))
    if unseen:
        num_unseen = sum(counts[name] for name in unseen)
        raise ValueError(
            f"The model's labels are {_listed(names)}. Received: {source} "
            f"{_listed(unseen)} as well ({how_many(num_unseen, 'time')}), first in example "
            f"{_first_with(examples, set(unseen))!r}. {_remedy(unseen, names)}"
        )
    return names


def class_ids(examples: TextExamples, names: Sequence[str]) -> np.ndarray:
    """Returns the id of each example's label, int32 `(N,)`."""
    ids = {name: number for number, name in enumerate(names)}
    return np.fromiter((ids[label] for label in examples.labels or ()), np.int32, len(examples))


def multi_hot(examples: TextExamples, names: Sequence[str]) -> np.ndarray:
    """Returns 1 for the labels that an example has and 0 for the others, int32 `(N, C)`."""
    ids = {name: number for number, name in enumerate(names)}
    hot: np.ndarray = np.zeros((len(examples), len(names)), np.int32)
    for row, labels in zip(hot, examples.labels or (), strict=True):
        row[[ids[label] for label in labels]] = 1
    return hot


def word_label_ids(examples: WordExamples, names: Sequence[str]) -> np.ndarray:
    """Returns the ids of the labels of all words, end to end, int32."""
    ids = {name: number for number, name in enumerate(names)}
    of_words = (ids[label] for labels in examples.labels or () for label in labels)
    return np.fromiter(of_words, np.int32)


def differ_in_capitals(names: Iterable[str], known: Iterable[str]) -> bool:
    """Tells whether names of labels would be known if capitals did not count."""
    return {name.lower() for name in names} <= {name.lower() for name in known}


def _remedy(unseen: Sequence[str], names: Sequence[str]) -> str:
    if differ_in_capitals(unseen, names):
        return "They differ in capitals alone: write them alike in all files."
    return "Train on examples that have every label, or take these out."


def _first_with(examples: TextExamples | WordExamples, labels: set[str]) -> str:
    for name, own in zip(examples.ids, examples.labels or (), strict=True):
        if labels.intersection((own,) if isinstance(own, str) else own):
            return name
    raise KeyError(labels)


def _listed(names: Sequence[str], at_most: int = 12) -> str:
    shown = ", ".join(repr(name) for name in names[:at_most])
    return shown if len(names) <= at_most else f"{shown} and {len(names) - at_most:,} more"
