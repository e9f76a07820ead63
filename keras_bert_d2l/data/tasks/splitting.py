"""Split examples into training and development data, and compare the two."""

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Sequence

from keras_bert_d2l.checks import check_share, check_type
from keras_bert_d2l.data.tasks.examples import TaskExamples, how_many


def split_examples(examples: TaskExamples, share: float) -> tuple[TaskExamples, TaskExamples]:
    """Split examples into training and development data.

    Texts are chosen by a hash, so the same data always gives the same split, and identical texts
    are in the same part. Questions about the same article stay in the same part.

    Args:
        examples: The examples.
        share: Approximate share of the second part, such as 0.1. The second part has at least one
            text, and no label that the first part lacks.

    Returns:
        The remaining part and the held-out part. The dropped examples of the file are only counted
        in the first.

    Raises:
        ValueError: There are too few different texts to hold out any.

    Example:

        >>> import keras_bert_d2l as kb
        >>> texts, labels = ["good", "fine", "bad", "poor"], ["+", "+", "-", "-"]
        >>> examples = kb.TextExamples(texts=texts, labels=labels)
        >>> train, dev = kb.split_examples(examples, 0.25)
        >>> len(train), len(dev)
        (3, 1)
    """
    check_type("examples", examples, TaskExamples, "Read a file with `read_examples`.")
    check_share("share", share)
    by_text: dict[str, list[int]] = {}
    for number, text in enumerate(examples.split_keys()):
        by_text.setdefault(text, []).append(number)
    groups = [by_text[text] for text in sorted(by_text, key=_hash)]
    learned = examples.label_counts()
    held_out = _held_out(examples, groups, share * len(examples), learned)
    if not held_out:  # every text occurs more often than wanted: hold out the rarest one
        of_groups = (
            _held_out(examples, [group], len(group), learned) for group in sorted(groups, key=len)
        )
        held_out = next(filter(None, of_groups), held_out)
    if not held_out:
        raise ValueError(
            f"{examples.source or 'The examples'}: {how_many(len(examples), 'example')} with "
            f"{how_many(len(groups), 'different text')} are too few to hold out a share of "
            f"{share:g}. Pass a file of development data instead."
        )
    larger = examples.subset(n for n in range(len(examples)) if n not in held_out)
    smaller = examples.subset(sorted(held_out))
    return larger, dataclasses.replace(smaller, dropped={}, first_dropped={})


def check_alike(train: TaskExamples, dev: TaskExamples) -> None:
    """Raise `ValueError` if only one of the two contains pairs, or only `train` has scores."""
    of_train, of_dev = (
        "pairs of texts" if getattr(examples, "texts_b", None) else "single texts"
        for examples in (train, dev)
    )
    if of_train != of_dev:
        raise ValueError(
            f"{dev.source or 'The development data'} must contain {of_train}, like the training "
            f"data. Received: {of_dev}. Read the same columns from both files, with or without "
            "`text_b`."
        )
    if train.are_scored and not dev.are_scored:
        raise ValueError(
            f"{dev.source or 'The development data'} must have a score for each pair, like the "
            "training data. Received: pairs without scores."
        )


def _held_out(
    examples: TaskExamples, groups: Sequence[Sequence[int]], wanted: float, learned: Counter[str]
) -> set[int]:
    """Return the indices of about `wanted` examples, taken as complete groups.

    A group is skipped if it would overshoot by more than it adds, leave no other example, or take
    the last example of a label. `learned` counts the labels of the remaining examples and is
    updated.
    """
    held_out: set[int] = set()
    for group in groups:
        missing = wanted - len(held_out)
        if missing < 0.5:
            break
        if len(group) > 2 * missing or len(held_out) + len(group) == len(examples):
            continue
        labels = examples.subset(group).label_counts()
        if all(learned[label] > count for label, count in labels.items()):
            held_out.update(group)
            learned.subtract(labels)
    return held_out


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
