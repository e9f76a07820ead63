"""Read multiple-choice examples from a table: SWAG, RACE, ARC and similar layouts.

The choices are in a column of lists, or in several columns. The right one is given by its number,
counted from 0 or 1, by its letter, or by its text.

Numbers count from 1 if more of them equal the number of choices than 0, and otherwise from 0.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

from keras_bert_d2l.checks import is_integer, shown
from keras_bert_d2l.contract.task import EncodingOptions
from keras_bert_d2l.data.tasks.examples import TaskExamples, are_strings, check_each
from keras_bert_d2l.data.tasks.readers.cells import (
    as_string,
    collect,
    listed,
    unusable_if,
    without_point,
)
from keras_bert_d2l.data.tasks.readers.columns import Columns, ReadingOptions, find_columns
from keras_bert_d2l.data.tasks.readers.tables import Row, read_table
from keras_bert_d2l.data.tasks.readers.text_file import TextFile
from keras_bert_d2l.data.tasks.texts import TextExamples

if TYPE_CHECKING:
    from keras_bert_d2l.data.tasks.rows import Fields
    from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer


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

    texts: tuple[str, ...]
    choices: tuple[tuple[str, ...], ...]
    labels: tuple[int, ...] | None = None
    task: str = "choose"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_each(self, "choices", _are_several, "a tuple of at least two strings")
        for name, choices, label in zip(self.ids, self.choices, self.labels or (), strict=False):
            if not is_integer(label) or label not in range(len(choices)):
                raise ValueError(
                    f"A label must be the position of a choice, from 0 to {len(choices) - 1}. "
                    f"Received: {shown(label)} in example {shown(name)}."
                )


def _are_several(items: object) -> bool:
    return are_strings(items) and len(cast(tuple[str, ...], items)) > 1


class _Choices(NamedTuple):
    """The choices of an example, and their own names, such as the letters of ARC."""

    texts: tuple[str, ...]
    names: tuple[str, ...] = ()
    are_lists: bool = False


def choice_examples(file: TextFile, options: ReadingOptions) -> ChoiceExamples:
    """Read the texts and the choices of a table.

    Raises:
        ValueError: The file has a different format, a column does not exist, or the labels do not
            show whether they count from 0 or from 1, or whether they are numbers or texts.
    """
    table = read_table(file, options.is_header)
    columns = find_columns(file, table, options)
    of_rows = [_choices(row, columns) for row in table.rows]
    labels = [row.text(columns.label).strip() for row in table.rows]
    is_labeled = any(labels)
    pairs = list(zip(labels, of_rows, strict=True))
    first = _first_number(pairs, os.fspath(file.path))

    def example(found: tuple[Row, str, _Choices]) -> dict[str, object]:
        row, label, choices = found
        text, text_b = (row.text(x).strip() for x in (columns.text, columns.text_b))
        unusable_if(not text, "empty text")
        unusable_if(len(choices.texts) < 2, "fewer than two choices")
        unusable_if(not all(choices.texts), "empty choice")
        unusable_if(choices.are_lists, "list or object instead of a choice")
        return {
            "ids": row.text(columns.id) or str(row.line),
            "texts": text,
            "choices": tuple(f"{text_b} {choice}".strip() for choice in choices.texts),
            "labels": _position(label, choices, first) if is_labeled else None,
        }

    return collect(
        ChoiceExamples,
        file,
        ((f"line {row.line:,}", (row, *pair)) for row, pair in zip(table.rows, pairs, strict=True)),
        example,
        table.notes,
        columns=columns.named(table),
    )


def _choices(row: Row, columns: Columns) -> _Choices:
    items: list[object] = list(map(row.cell, columns.choices))
    names: list[object] = []
    if len(items) == 1 and isinstance(items[0], Mapping):  # ARC: {"text": [...], "label": [...]}
        fields = map(items[0].get, ("text", "label"))
        items, names = (field if isinstance(field, list) else [] for field in fields)
    elif len(items) == 1:
        items = listed(items[0], is_alone=True) or []
        names = [item.get("label") for item in items if isinstance(item, Mapping)]
        items = [item.get("text") if isinstance(item, Mapping) else item for item in items]
    texts = tuple(as_string(item).strip() for item in items)
    are_lists = any(isinstance(item, list | dict) for item in items)
    return _Choices(texts, tuple(map(as_string, names)), are_lists)


def _first_number(pairs: Sequence[tuple[str, _Choices]], source: str) -> int:
    """Return the number of the first choice, 0 or 1.

    The majority decides, so that single wrong labels do not shift all others. Numbers are rejected
    if all labels of the file may as well be the texts of the choices.
    """
    numbers = [
        (int(digits), label, choices.texts)
        for label, choices in pairs
        if (digits := without_point(label)).isdecimal() and label not in choices.names
    ]
    first = sum(number == 0 for number, _, _ in numbers)
    last = sum(number == len(texts) for number, _, texts in numbers)
    counts_from = int(last > first)
    are_texts = all(choices.texts.count(label) == 1 for label, choices in pairs if label)
    for number, label, texts in numbers:
        if are_texts and number - counts_from != texts.index(label):
            raise ValueError(
                "The labels of the right choices must be unambiguous. Received: labels that are "
                f"both numbers and texts of choices in {source!r}, such as {shown(label)} for the "
                f"choices {shown(list(texts))}. Give their letters, such as A and B."
            )
    if not first + last and any(number < len(texts) for number, _, texts in numbers):
        raise ValueError(
            "The numbers of the right choices must show whether they count from 0 or from 1. "
            f"Received: no label 0 and no label of the last choice in {source!r}. Give the letters "
            "of the right choices, such as A and B, or their texts."
        )
    return counts_from


def _position(label: str, choices: _Choices, first: int) -> int:
    """Return the position of the right choice, from 0. `first` is the number of the first one."""
    unusable_if(not label, "no label")
    number = without_point(label)
    if label in choices.names:
        position = choices.names.index(label)
    elif number.removeprefix("-").isdecimal():
        position = int(number) - first
    elif choices.texts.count(label) == 1:
        position = choices.texts.index(label)
    else:
        position = ascii_uppercase.find(label.upper()) if len(label) == 1 else -1
    is_known = 0 <= position < len(choices.texts)
    unusable_if(not is_known, "label is not the number, the letter or the text of a choice")
    return position


def encoded_choices(
    examples: ChoiceExamples, tokenizer: "Tokenizer", options: EncodingOptions
) -> "Fields":
    """Encode each text with each of its choices, one row after the other.

    A batch needs the same number of choices for all texts, so examples with another number than
    most have are dropped.
    """
    import numpy as np

    from keras_bert_d2l.data.tasks.rows import encoded_texts

    counts = np.array(list(map(len, examples.choices)))
    number = int(np.bincount(counts).argmax())
    kept = np.flatnonzero(counts == number)
    fields = encoded_texts(
        TextExamples(
            texts=tuple(examples.texts[n] for n in kept for _ in range(number)),
            texts_b=tuple(choice for n in kept for choice in examples.choices[n]),
        ),
        *(tokenizer, options),
    )
    lengths = fields["full_lengths"].reshape(-1, number).max(axis=1)
    full_lengths = np.zeros(len(examples), np.int32)
    full_lengths[kept] = lengths
    positions = examples.labels and np.repeat(np.array(examples.labels, np.int32)[kept], number)
    num_dropped = len(examples) - len(kept)
    reason = f"not {number} choices, as most examples have"
    return {
        **fields,
        "labels": positions,
        "examples": np.repeat(kept.astype(np.int32), number),
        "full_lengths": full_lengths,
        "num_truncated": int((lengths > options.max_len).sum()),
        "rows_together": True,
        "is_grouped": True,
        "dropped": {reason: num_dropped} if num_dropped else {},
    }
