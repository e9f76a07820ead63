"""Examples of a task in memory, as plain Python values, and their split into two parts.

N: number of examples.
"""

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Self, TypeAlias

from keras_bert_d2l.checks import check_share, check_that, check_type, is_integer, shown
from keras_bert_d2l.contract.task import check_task, task_named
from keras_bert_d2l.text_arguments import has_surrogate

_TEXTS = ("texts", "texts_b", "negatives", "questions", "contexts")
_OPTIONAL = ("texts_b", "negatives", "titles", "labels", "answers")

Label: TypeAlias = str | float | tuple[str, ...]
"""The label of a text: a name, a score, or any number of names."""


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class TaskExamples:
    """Base class of task examples, with the fields that all tasks share.

    Args:
        task: The name of the task.
        ids: An id for each example. By default, the examples are numbered from 0.
        source: Path of the file or folder that was read.
        sha256: Checksum of that file, or of the files of the folder.
        columns: Names of the columns that were read, by role: `"text"`, `"text_b"`, `"label"`,
            `"id"`.
        dropped: Number of unusable examples in the file, by reason.
        first_dropped: Location of the first unusable example in the file, by reason.
        notes: What was decided about the format of the file where others would be possible.

    Raises:
        ValueError: The sequences have different lengths, the task is unknown, or a text has half of
            a surrogate pair.
    """

    sequences: ClassVar[tuple[str, ...]] = ()  # fields with N values each, besides `ids`

    task: str
    ids: tuple[str, ...] = ()
    source: str = ""
    sha256: str = ""
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    dropped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    first_dropped: Mapping[str, str] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_task(self)
        lengths: dict[str, int] = {}
        for name in (*self.sequences, "ids"):
            values = getattr(self, name)
            if values is None and name in _OPTIONAL:
                continue
            is_list = isinstance(values, Iterable) and not isinstance(values, str | bytes)
            check_that(is_list, name, "a list", values)
            values = tuple(values)
            if name == "ids" and not values:
                values = tuple(map(str, range(lengths[self.sequences[0]])))
            object.__setattr__(self, name, values)
            lengths[name] = len(values)
        received = ", ".join(f"{length:,} {name}" for name, length in lengths.items())
        if len(set(lengths.values())) > 1:
            kind = type(self).__name__
            raise ValueError(f"Sequences of {kind} must have equal lengths. Received: {received}.")
        for name in lengths:
            if name in _TEXTS:
                check_each(self, name, is_string, "a string")
            for one, value in zip(self.ids, getattr(self, name), strict=True):
                if has_surrogate(value):
                    raise ValueError(
                        f"`{name}` must not have half of a surrogate pair, which UTF-8 cannot "
                        f"encode. Received: {shown(value)} in example {shown(one)}. Remove the "
                        "character, for example with text.encode(errors='ignore').decode()."
                    )

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        parts = [f"task={self.task!r}", how_many(len(self), "example")]
        if counts := self.label_counts():
            parts.append(f"labels={shown(dict(counts))}")
        if self.source:
            parts.append(f"source={self.source!r}")
        if self.notes:
            parts.append(f"notes={self.notes!r}")
        return f"{type(self).__name__}({', '.join(parts)})"

    @property
    def has_labels(self) -> bool:
        """Whether the labels, scores or answers are known."""
        return getattr(self, self.sequences[-1]) is not None

    @property
    def label_names(self) -> tuple[str, ...]:
        """The different labels, sorted (numbers by value); empty for scores and answers."""
        names = sorted(self.label_counts())
        if all(name.removeprefix("-").isdecimal() for name in names):
            names.sort(key=int)
        return tuple(names)

    def label_counts(self) -> Counter[str]:
        """Return the number of occurrences of each label; empty for scores and answers."""
        return Counter()

    @property
    def multi_label(self) -> bool:
        """Whether a text can have any number of labels."""
        return False

    @property
    def are_scored(self) -> bool:
        """Whether they are texts or pairs of texts with scores."""
        return task_named(self.task).has_scores and getattr(self, self.sequences[-1]) is not None

    @property
    def have_pairs_in_rows(self) -> bool:
        """Whether a row contains two texts; if they are too long, the longer one is truncated."""
        return False

    def split_keys(self) -> list[str]:
        """Return the text that decides the part of each example in `split_examples`."""
        first_sequence = getattr(self, self.sequences[0])
        return [one if isinstance(one, str) else " ".join(one) for one in first_sequence]

    def label_values(self) -> list[Any]:
        """Return all labels: one per example, or one per word."""
        values = getattr(self, self.sequences[-1])
        return [tuple(label) if isinstance(label, list) else label for label in values]

    def subset(self, indices: Iterable[int]) -> Self:
        """Return the examples at the given positions, in the given order.

        `dropped` describes the file, so it stays the same.

        Raises:
            ValueError: An index is not the position of an example. Negative positions count from
                the end.
        """
        chosen = list(indices)
        expected = f"positions of the {how_many(len(self), 'example')}, which count from 0"
        for index in chosen:
            is_right = is_integer(index) and -len(self) <= index < len(self)
            check_that(
                is_right, "indices", expected, index, "For a mask, use np.flatnonzero(mask)."
            )
        fields: dict[str, Any] = {
            name: tuple(values[index] for index in chosen)
            for name in ("ids", *self.sequences)
            if (values := getattr(self, name)) is not None
        }
        return dataclasses.replace(self, **fields)

    def without_labels(self) -> Self:
        """Return the examples without their labels, scores or answers."""
        fields: dict[str, Any] = {self.sequences[-1]: None}
        return dataclasses.replace(self, **fields)

    def fingerprint(self) -> str:
        """Return a checksum of the examples and their order."""
        digest = hashlib.sha256()
        for name in ("ids", *self.sequences):
            digest.update(repr(getattr(self, name)).encode())
        return digest.hexdigest()

    def dropped_in_words(self) -> list[str]:
        """Return one line per reason for dropped examples, most frequent reason first."""
        return [
            f"{count:,} dropped: {reason}"
            + (f" (first: {self.first_dropped[reason]})" if reason in self.first_dropped else "")
            for reason, count in Counter(self.dropped).most_common()
        ]


def is_string(item: object) -> bool:
    """Return whether something is a string."""
    return isinstance(item, str)


def are_strings(items: object) -> bool:
    """Return whether something is a list or a tuple of strings."""
    return isinstance(items, list | tuple) and all(isinstance(item, str) for item in items)


def names_of(label: Label) -> tuple[str, ...]:
    """Return the names in a label; empty for a score."""
    if isinstance(label, str):
        return (label,)
    return tuple(label) if isinstance(label, tuple | list) else ()


def check_each(
    examples: TaskExamples, sequence: str, is_right: Callable[[object], bool], kind: str
) -> None:
    """Raise `ValueError` unless every item of a sequence of examples is right.

    Args:
        examples: The examples.
        sequence: The name of the sequence.
        is_right: Whether an item is right.
        kind: What an item must be, for the message.
    """
    for name, item in zip(examples.ids, getattr(examples, sequence) or (), strict=False):
        if not is_right(item):
            raise ValueError(
                f"Every item of `{sequence}` for the task {examples.task!r} must be {kind}. "
                f"Received: {shown(item)} in example {shown(name)}."
            )


def how_many(count: int, noun: str) -> str:
    """Format a count with its noun: `"1 example"` or `"1,000 examples"`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def split_examples(examples: TaskExamples, share: float) -> tuple[TaskExamples, TaskExamples]:
    """Split examples into training and development data.

    Texts are chosen by a hash, so the same data always gives the same split, and identical texts
    are in the same part. Questions about the same article stay in the same part. Texts are skipped
    that would overshoot by more than they add, or that have the last examples of a label.

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
    held_out: set[int] = set()
    learned = examples.label_counts()  # of the remaining examples
    for text in sorted(by_text, key=lambda text: hashlib.sha256(text.encode()).digest()):
        group = by_text[text]
        missing = max(1, share * len(examples)) - len(held_out)
        if missing < 0.5:
            break
        if len(group) > 2 * missing or len(held_out) + len(group) == len(examples):
            continue
        labels = examples.subset(group).label_counts()
        if all(learned[label] > count for label, count in labels.items()):
            held_out.update(group)
            learned.subtract(labels)
    if not held_out:
        raise ValueError(
            f"{examples.source or 'The examples'}: {how_many(len(examples), 'example')} with "
            f"{how_many(len(by_text), 'different text')} are too few to hold out a share of "
            f"{share:g}. Pass a file of development data instead."
        )
    larger = examples.subset(n for n in range(len(examples)) if n not in held_out)
    smaller = examples.subset(sorted(held_out))
    return larger, dataclasses.replace(smaller, dropped={}, first_dropped={}, notes=())


def check_alike(train: TaskExamples, dev: TaskExamples) -> None:
    """Raise `ValueError` if only one of the two contains pairs, or only `train` has scores."""
    kinds = []
    for examples in (train, dev):
        kind = "pairs of texts" if getattr(examples, "texts_b", None) else "single texts"
        lacks_scores = train.are_scored and not examples.are_scored
        kinds.append(f"{kind} without scores" if lacks_scores else kind)
    if kinds[0] != kinds[1]:
        raise ValueError(
            f"{dev.source or 'The development data'} must contain {kinds[0]}, like the training "
            f"data. Received: {kinds[1]}. Read the same columns from both files."
        )
