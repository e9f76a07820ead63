"""Examples of a task, in memory: what readers give out and models learn from, as plain values.

N: number of examples.
"""

import dataclasses
import hashlib
import numbers
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

TASKS = ("classify", "regress", "tag", "answer")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskExamples:
    """What examples of all tasks have in common.

    Args:
        task: `"classify"`, `"regress"`, `"tag"` or `"answer"`.
        ids: A name for each example; without any they are numbered from 0 on.
        source: The file they were read from.
        sha256: Of the bytes of that file; of a folder, of its files.
        columns: The columns of that file that were read, by what they are for: `"text"`,
            `"text_b"`, `"label"`, `"id"`.
        dropped: How many examples of the file could not be used, by reason.
        first_dropped: Where the first of these stands, by reason.

    Raises:
        ValueError: The sequences are not equally long, or there is no such task.
    """

    sequences: ClassVar[tuple[str, ...]] = ()  # the fields of N values, beside `ids`
    tasks: ClassVar[tuple[str, ...]] = ()

    task: str
    ids: tuple[str, ...] = ()
    source: str = ""
    sha256: str = ""
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    dropped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    first_dropped: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.task not in self.tasks:
            raise ValueError(
                f"`task` must be one of {', '.join(map(repr, self.tasks))} for "
                f"{type(self).__name__}. Received: task={self.task!r}."
            )
        for name in ("ids", *self.sequences):  # lists are as good
            values = getattr(self, name)
            object.__setattr__(self, name, None if values is None else tuple(values))
        if not self.ids:
            ids = tuple(map(str, range(len(getattr(self, self.sequences[0])))))
            object.__setattr__(self, "ids", ids)
        lengths = {
            name: len(getattr(self, name))
            for name in ("ids", *self.sequences)
            if getattr(self, name) is not None
        }
        if len(set(lengths.values())) > 1:
            raise ValueError(
                f"The sequences of {type(self).__name__} must be equally long. Received: "
                + ", ".join(f"{length:,} {name}" for name, length in lengths.items())
                + "."
            )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def has_labels(self) -> bool:
        """Whether it is known what is right."""
        return getattr(self, self.sequences[-1]) is not None

    @property
    def label_names(self) -> tuple[str, ...]:
        """The different labels, sorted (numbers by their value); none of scores and answers."""
        return sorted_labels(self.label_counts())

    def label_counts(self) -> Counter[str]:
        """How often each label occurs."""
        return Counter()

    def subset(self, indices: Iterable[int]) -> Self:
        """Returns the examples of these numbers, in this order.

        What was dropped from the file is told of the subset, too.
        """
        chosen = [int(index) for index in indices]
        fields: dict[str, Any] = {
            name: tuple(values[index] for index in chosen)
            for name in ("ids", *self.sequences)
            if (values := getattr(self, name)) is not None
        }
        return dataclasses.replace(self, **fields)

    def without_labels(self) -> Self:
        """Returns the examples as if it were not known what is right."""
        fields: dict[str, Any] = {self.sequences[-1]: None}
        return dataclasses.replace(self, **fields)

    def fingerprint(self) -> str:
        """Return a checksum of the examples and their order."""
        digest = hashlib.sha256()
        for name in ("ids", *self.sequences):
            digest.update(repr(getattr(self, name)).encode())
        return digest.hexdigest()

    def dropped_in_words(self) -> list[str]:
        """Says what was dropped, a line for each reason; most frequent first."""
        reasons = sorted(self.dropped.items(), key=lambda item: -item[1])
        return [
            f"{count:,} dropped: {reason}"
            + (f" (first: {self.first_dropped[reason]})" if reason in self.first_dropped else "")
            for reason, count in reasons
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextExamples(TaskExamples):
    """Texts or pairs of texts, classified or scored.

    Args:
        texts: N texts.
        texts_b: The second text of each pair; None for single texts.
        labels: A name for each text; or for `"regress"` a number; or, where a text can have any
            number of labels, a tuple of names. None: not known.
        task: `"classify"` or `"regress"`.
        **kwargs: As those of `TaskExamples`.

    Raises:
        ValueError: A label is no name, or no number where one must be.
    """

    sequences: ClassVar[tuple[str, ...]] = ("texts", "texts_b", "labels")
    tasks: ClassVar[tuple[str, ...]] = ("classify", "regress")

    texts: tuple[str, ...]
    texts_b: tuple[str, ...] | None = None
    labels: tuple[Any, ...] | None = None
    task: str = "classify"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task == "regress":
            _check_labels(self, _is_number, "a number")
        elif self.multi_label:
            _check_labels(self, _are_names, "texts, the names of an example")
        else:
            _check_labels(self, _is_name, "a text, its name")

    @property
    def multi_label(self) -> bool:
        """Whether a text can have any number of labels."""
        return bool(self.labels) and all(isinstance(x, tuple | list) for x in self.labels or ())

    def label_counts(self) -> Counter[str]:
        if self.task == "regress" or self.labels is None:
            return Counter()
        if self.multi_label:
            return Counter(label for labels in self.labels for label in labels)
        return Counter(self.labels)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordExamples(TaskExamples):
    """Texts as words, each of which has a label.

    Args:
        words: The words of N texts.
        labels: Their labels, as many as words. None: not known.
        **kwargs: As those of `TaskExamples`.

    Raises:
        ValueError: Words and labels of a text are not equally many, or a label is no name.
    """

    sequences: ClassVar[tuple[str, ...]] = ("words", "labels")
    tasks: ClassVar[tuple[str, ...]] = ("tag",)

    words: tuple[tuple[str, ...], ...]
    labels: tuple[tuple[str, ...], ...] | None = None
    task: str = "tag"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, words, labels in zip(self.ids, self.words, self.labels or (), strict=False):
            if len(words) != len(labels):
                raise ValueError(
                    f"Every word needs a label. Received: {how_many(len(words), 'word')} but "
                    f"{how_many(len(labels), 'label')} in example {name!r}."
                )
        _check_labels(self, _are_names, "texts, a name for each word")

    def label_counts(self) -> Counter[str]:
        return Counter(label for labels in self.labels or () for label in labels)


@dataclasses.dataclass(frozen=True)
class Answer:
    """A part of a text.

    Attributes:
        text: The part.
        start: Its first character in the text.
    """

    text: str
    start: int

    @property
    def end(self) -> int:
        """Its last character plus one."""
        return self.start + len(self.text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionExamples(TaskExamples):
    """Questions about texts that hold the answers, or do not.

    Args:
        questions: N questions.
        contexts: The text that each is about.
        titles: The article of each text, where it is known.
        answers: The right answers to each question, none where the text holds no answer. None:
            not known.
        **kwargs: As those of `TaskExamples`.

    Raises:
        ValueError: An answer does not stand where it says in its text.
    """

    sequences: ClassVar[tuple[str, ...]] = ("questions", "contexts", "titles", "answers")
    tasks: ClassVar[tuple[str, ...]] = ("answer",)

    questions: tuple[str, ...]
    contexts: tuple[str, ...]
    titles: tuple[str, ...] | None = None
    answers: tuple[tuple[Answer, ...], ...] | None = None
    task: str = "answer"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, context, answers in zip(
            self.ids, self.contexts, self.answers or (), strict=False
        ):
            for answer in answers:
                if not stands_in(answer, context):
                    raise ValueError(
                        f"An answer must stand in its context. Received: {answer.text!r:.60} at "
                        f"character {answer.start} of example {name!r}, where the context has "
                        f"{context[answer.start : answer.end]!r:.60}."
                    )


def _is_name(label: Any) -> bool:
    return isinstance(label, str)


def _are_names(labels: Any) -> bool:
    return all(isinstance(label, str) for label in labels)


def _is_number(label: Any) -> bool:
    return isinstance(label, numbers.Real) and not isinstance(label, bool)


def _check_labels(
    examples: TextExamples | WordExamples, is_right: Callable[[Any], bool], kind: str
) -> None:
    """Raises a `ValueError` at the first label that is not of its kind."""
    for name, label in zip(examples.ids, examples.labels or (), strict=False):
        if not is_right(label):
            raise ValueError(
                f"Every label must be {kind}, for the task {examples.task!r}. Received: "
                f"{label!r:.80} in example {name!r}."
            )


def how_many(count: int, noun: str) -> str:
    """Returns a number of things in words, `"1 example"` or `"1,000 examples"`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def stands_in(answer: Answer, context: str) -> bool:
    """Whether the context has the answer at its place."""
    return (
        bool(answer.text.strip())
        and answer.start >= 0
        and context.startswith(answer.text, answer.start)
    )


def sorted_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Returns different labels in a fixed order: whole numbers by their value, or by spelling."""
    names: Sequence[str] = sorted(set(labels))
    if names and all(name.removeprefix("-").isdecimal() for name in names):
        names = sorted(names, key=int)
    return tuple(names)
