"""Examples of a task in memory, as plain Python values.

N: number of examples.
"""

import dataclasses
import hashlib
import math
import numbers
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Self, TypeAlias, cast

from keras_bert_d2l.checks import check_choice, has_surrogate, is_integer, shown

TASKS = ("classify", "regress", "tag", "answer", "choose", "embed")

_OPTIONAL = ("texts_b", "negatives", "titles", "labels", "answers")

Label: TypeAlias = str | float | tuple[str, ...]
"""The label of a text: a name, a score, or any number of names."""


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class TaskExamples:
    """Base class of task examples, with the fields that all tasks share.

    Args:
        task: `"classify"`, `"regress"`, `"tag"`, `"answer"`, `"choose"` or `"embed"`.
        ids: An id for each example. By default, the examples are numbered from 0.
        source: Path of the file or folder that was read.
        sha256: Checksum of that file, or of the files of the folder.
        columns: Names of the columns that were read, by role: `"text"`, `"text_b"`, `"label"`,
            `"id"`.
        dropped: Number of unusable examples in the file, by reason.
        first_dropped: Location of the first unusable example in the file, by reason.

    Raises:
        ValueError: The sequences have different lengths, the task is unknown, or a text has half of
            a surrogate pair.
    """

    sequences: ClassVar[tuple[str, ...]] = ()  # fields with N values each, besides `ids`
    tasks: ClassVar[tuple[str, ...]] = ()

    task: str
    ids: tuple[str, ...] = ()
    source: str = ""
    sha256: str = ""
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    dropped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    first_dropped: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("task", self.task, self.tasks)
        lengths: dict[str, int] = {}
        for name in (*self.sequences, "ids"):
            values = getattr(self, name)
            if values is None and name in _OPTIONAL:
                continue
            if isinstance(values, str | bytes) or not isinstance(values, Iterable):
                raise ValueError(f"`{name}` must be a list. Received: {shown(values)}.")
            values = tuple(values)
            if name == "ids" and not values:
                values = tuple(map(str, range(lengths[self.sequences[0]])))
            object.__setattr__(self, name, values)
            lengths[name] = len(values)
        if len(set(lengths.values())) > 1:
            raise ValueError(
                f"The sequences of {type(self).__name__} must have equal lengths. Received: "
                + ", ".join(f"{length:,} {name}" for name, length in lengths.items())
                + "."
            )

        for name in lengths:
            for one, value in zip(self.ids, getattr(self, name), strict=True):
                if has_surrogate(value):
                    raise ValueError(
                        f"`{name}` must not have half of a surrogate pair, which UTF-8 cannot "
                        f"encode. Received: {shown(value)} in example {one!r}. Remove the "
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

    def subset(self, indices: Iterable[int]) -> Self:
        """Return the examples at the given positions, in the given order.

        `dropped` describes the file, so it stays the same.

        Raises:
            ValueError: An index is not the position of an example. Negative positions count from
                the end.
        """
        chosen = list(indices)
        for index in chosen:
            if not is_integer(index):
                raise ValueError(
                    "`indices` must be positions of examples, which are integers; for a mask use "
                    f"np.flatnonzero(mask). Received: {shown(index)} ({type(index).__name__})."
                )
            if not -len(self) <= index < len(self):
                raise ValueError(
                    f"`indices` must be positions of the {how_many(len(self), 'example')}, which "
                    f"count from 0. Received: {index}."
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


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class TextExamples(TaskExamples):
    """Texts or pairs of texts to classify or score.

    Args:
        texts: N texts.
        texts_b: The second text of each pair; None for single texts.
        labels: One name per text; for `"regress"`, one number per text; for multi-label texts, one
            tuple of names per text. None if they are unknown.
        task: `"classify"` or `"regress"`.
        **kwargs: The fields of `TaskExamples`.

    Raises:
        ValueError: A label is not a string, or for `"regress"` not a finite number.

    Example:

        >>> import keras_bert_d2l as kb
        >>> examples = kb.TextExamples(texts=["A joy.", "A bore."], labels=["good", "bad"])
        >>> len(examples), examples.label_names
        (2, ('bad', 'good'))
    """

    sequences: ClassVar[tuple[str, ...]] = ("texts", "texts_b", "labels")
    tasks: ClassVar[tuple[str, ...]] = ("classify", "regress")

    texts: tuple[str, ...]
    texts_b: tuple[str, ...] | None = None
    labels: tuple[Label, ...] | None = None
    task: str = "classify"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_each(self, "texts", _is_string, "a string")
        _check_each(self, "texts_b", _is_string, "a string")
        if self.task in ("regress", "embed"):
            _check_each(self, "labels", _is_number, "a finite number")
        elif self.multi_label:
            _check_each(self, "labels", _are_strings, "a tuple of strings (the label names)")
        else:
            _check_each(self, "labels", _is_string, "a string (the label name)")

    @property
    def multi_label(self) -> bool:
        """Whether a text can have any number of labels."""
        return bool(self.labels) and all(isinstance(x, tuple | list) for x in self.labels or ())

    def label_counts(self) -> Counter[str]:
        return Counter(name for label in self.labels or () for name in names_of(label))


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class PairExamples(TextExamples):
    """Pairs of texts from which a `TextEmbedder` learns which texts are similar.

    Args:
        texts: N texts, the anchors.
        texts_b: The text that belongs to each anchor, such as the answer to a question.
        negatives: A text that does not belong to each anchor, although it looks similar. Optional.
        labels: How similar the texts of each pair are, as numbers on any scale. Without scores,
            all pairs are similar.
        **kwargs: The fields of `TaskExamples`.

    Raises:
        ValueError: `texts_b` is missing, or there are both scores and negatives.

    Example:

        >>> import keras_bert_d2l as kb
        >>> pairs = kb.PairExamples(texts=["who wrote it?"], texts_b=["ada did"])
        >>> len(pairs), pairs.has_labels
        (1, True)
    """

    sequences: ClassVar[tuple[str, ...]] = ("texts", "texts_b", "negatives", "labels")
    tasks: ClassVar[tuple[str, ...]] = ("embed",)

    negatives: tuple[str, ...] | None = None
    task: str = "embed"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_each(self, "negatives", _is_string, "a string")
        if self.texts_b is None:
            raise ValueError("`texts_b` must have the second text of each pair. Received: None.")
        if self.negatives and self.labels:
            raise ValueError(
                "`labels` must be None for examples with `negatives`. Received: scores as well."
            )

    @property
    def has_labels(self) -> bool:
        return True  # which texts are pairs is all that a model needs


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class WordExamples(TaskExamples):
    """Texts that are split into words, with one label per word.

    Args:
        words: The words of N texts.
        labels: One label per word of each text. None if they are unknown.
        **kwargs: The fields of `TaskExamples`.

    Raises:
        ValueError: A text has more or fewer labels than words, or a label is not a string.

    Example:

        >>> import keras_bert_d2l as kb
        >>> examples = kb.WordExamples(words=[["Ada", "left"]], labels=[["PER", "O"]])
        >>> examples.label_counts()
        Counter({'PER': 1, 'O': 1})
    """

    sequences: ClassVar[tuple[str, ...]] = ("words", "labels")
    tasks: ClassVar[tuple[str, ...]] = ("tag",)

    words: tuple[tuple[str, ...], ...]
    labels: tuple[tuple[str, ...], ...] | None = None
    task: str = "tag"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_each(self, "words", _are_strings, "a tuple of strings, the words of a text")
        _check_each(self, "labels", _are_strings, "a tuple of strings, one label name per word")
        for name, words, labels in zip(self.ids, self.words, self.labels or (), strict=False):
            if len(words) != len(labels):
                raise ValueError(
                    f"Every word must have a label. Received: {how_many(len(words), 'word')} but "
                    f"{how_many(len(labels), 'label')} in example {name!r}."
                )

    def label_counts(self) -> Counter[str]:
        return Counter(label for labels in self.labels or () for label in labels)


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer, which is a span of a text.

    Attributes:
        text: The answer.
        start: Position of its first character in the text.

    Example:

        >>> import keras_bert_d2l as kb
        >>> answer = kb.Answer("crane", start=2)
        >>> "A crane flies."[answer.start : answer.end]
        'crane'
    """

    text: str
    start: int

    @property
    def end(self) -> int:
        """The position after its last character."""
        return self.start + len(self.text)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class QuestionExamples(TaskExamples):
    """Questions about contexts that may contain the answers.

    Args:
        questions: N questions.
        contexts: The text that each question is about.
        titles: The title of the article that each context is from, if known.
        answers: The correct answers to each question; empty if the context has none. None if
            they are unknown.
        **kwargs: The fields of `TaskExamples`.

    Raises:
        ValueError: An answer is not at its position in the context.

    Example:

        >>> import keras_bert_d2l as kb
        >>> examples = kb.QuestionExamples(
        ...     questions=["What flies?"],
        ...     contexts=["A crane flies."],
        ...     answers=[[kb.Answer("crane", start=2)]],
        ... )
        >>> examples.has_labels
        True
    """

    sequences: ClassVar[tuple[str, ...]] = ("questions", "contexts", "titles", "answers")
    tasks: ClassVar[tuple[str, ...]] = ("answer",)

    questions: tuple[str, ...]
    contexts: tuple[str, ...]
    titles: tuple[str | None, ...] | None = None
    answers: tuple[tuple[Answer, ...], ...] | None = None
    task: str = "answer"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("questions", "contexts"):
            _check_each(self, name, _is_string, "a string")
        _check_each(self, "answers", _are_answers, "a tuple of `Answer`, empty for no answer")
        for name, context, answers in zip(
            self.ids, self.contexts, self.answers or (), strict=False
        ):
            for answer in answers:
                if not stands_in(answer, context):
                    raise ValueError(
                        f"An answer must be at its position in the context. Received: "
                        f"{shown(answer.text)} at character {answer.start} of example {name!r}, "
                        f"where the context has {shown(context[answer.start : answer.end])}."
                    )


def are_scored(examples: TaskExamples) -> bool:
    """Return whether the examples are texts or pairs of texts with scores."""
    return (
        isinstance(examples, TextExamples)
        and examples.task in ("regress", "embed")
        and examples.labels is not None
    )


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class ChoiceExamples(TaskExamples):
    """Texts, each with several choices of which one is right.

    Args:
        texts: N texts, for example the beginning of a story.
        choices: The choices for each text, at least two.
        labels: The position of the right choice of each text, from 0. None if it is unknown.
        **kwargs: The fields of `TaskExamples`.

    Raises:
        ValueError: A text has fewer than two choices, or a label is not the position of one.

    Example:

        >>> import keras_bert_d2l as kb
        >>> examples = kb.ChoiceExamples(
        ...     texts=["She opens"], choices=[["the door.", "the sky."]], labels=[0]
        ... )
        >>> examples.choices[0][examples.labels[0]]
        'the door.'
    """

    sequences: ClassVar[tuple[str, ...]] = ("texts", "choices", "labels")
    tasks: ClassVar[tuple[str, ...]] = ("choose",)

    texts: tuple[str, ...]
    choices: tuple[tuple[str, ...], ...]
    labels: tuple[int, ...] | None = None
    task: str = "choose"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_each(self, "texts", _is_string, "a string")
        _check_each(self, "choices", _are_several, "a tuple of at least two strings")
        for name, choices, label in zip(self.ids, self.choices, self.labels or (), strict=False):
            if not _is_integer(label) or label not in range(len(choices)):
                raise ValueError(
                    f"A label must be the position of a choice, from 0 to {len(choices) - 1}. "
                    f"Received: {shown(label)} in example {name!r}."
                )


def names_of(label: Label) -> tuple[str, ...]:
    """Return the names in a label; empty for a score."""
    if isinstance(label, str):
        return (label,)
    return tuple(label) if isinstance(label, tuple | list) else ()


def _is_string(item: object) -> bool:
    return isinstance(item, str)


def _are_strings(items: object) -> bool:
    return isinstance(items, list | tuple) and all(isinstance(item, str) for item in items)


def _are_several(items: object) -> bool:
    return _are_strings(items) and len(cast(tuple[str, ...], items)) > 1


def _are_answers(items: object) -> bool:
    return isinstance(items, list | tuple) and all(isinstance(item, Answer) for item in items)


def _is_number(item: object) -> bool:
    is_number = isinstance(item, numbers.Real) and not isinstance(item, bool)
    return is_number and math.isfinite(cast(float, item))


def _is_integer(item: object) -> bool:
    return isinstance(item, numbers.Integral) and not isinstance(item, bool)


def _check_each(
    examples: TaskExamples, sequence: str, is_right: Callable[[object], bool], kind: str
) -> None:
    for name, item in zip(examples.ids, getattr(examples, sequence) or (), strict=False):
        if not is_right(item):
            raise ValueError(
                f"Every item of `{sequence}` for the task {examples.task!r} must be {kind}. "
                f"Received: {shown(item)} in example {name!r}."
            )


def how_many(count: int, noun: str) -> str:
    """Format a count with its noun: `"1 example"` or `"1,000 examples"`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def stands_in(answer: Answer, context: str) -> bool:
    """Return whether the answer is at its position in the context."""
    return (
        bool(answer.text.strip())
        and answer.start >= 0
        and context.startswith(answer.text, answer.start)
    )
