"""Texts and pairs of texts with labels or scores, read from a table or a folder of text files."""

import dataclasses
import hashlib
import math
import os
import pathlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar, TypeVar

from keras_bert_d2l.checks import is_number, shown
from keras_bert_d2l.contract.task import task_named
from keras_bert_d2l.data.tasks.examples import (
    Label,
    TaskExamples,
    are_strings,
    check_each,
    is_string,
    names_of,
)
from keras_bert_d2l.data.tasks.readers.cells import (
    NumberFormat,
    are_lists,
    as_flag,
    as_string,
    collect,
    is_flag,
    is_object,
    listed,
    unusable_if,
    without_point,
)
from keras_bert_d2l.data.tasks.readers.columns import (
    Columns,
    ReadingOptions,
    find_columns,
    with_likely_columns,
)
from keras_bert_d2l.data.tasks.readers.tables import Row, read_table
from keras_bert_d2l.data.tasks.readers.text_file import TextFile, read_file
from keras_bert_d2l.reading import sha256_of, visible_files

_NO_AGREEMENT = "-"  # SNLI and MultiNLI: the annotators of the pair disagreed
_NAME_IN_BRACKETS = re.compile(r"\[\s*\d+\s*\]|\([^'\"]+\)")  # "[1]", "(0, 10)"
_SHOWN = 6  # maximum number of folders in an error message
_UNLABELED_FOLDER = "unsup"  # in the IMDB reviews


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

    texts: tuple[str, ...]
    texts_b: tuple[str, ...] | None = None
    labels: tuple[Label, ...] | None = None
    task: str = "classify"

    def __post_init__(self) -> None:
        super().__post_init__()
        if task_named(self.task).has_scores:
            check_each(self, "labels", _is_finite, "a finite number")
        elif self.multi_label:
            check_each(self, "labels", are_strings, "a tuple of strings (the label names)")
        else:
            check_each(self, "labels", is_string, "a string (the label name)")

    @property
    def multi_label(self) -> bool:
        return bool(self.labels) and all(isinstance(x, tuple | list) for x in self.labels or ())

    @property
    def have_pairs_in_rows(self) -> bool:
        return self.texts_b is not None

    @property
    def shown_texts(self) -> Sequence[str]:
        """Each text, or both texts of each pair."""
        if self.texts_b is None:
            return self.texts
        return [" | ".join(pair) for pair in zip(self.texts, self.texts_b, strict=True)]

    def label_counts(self) -> Counter[str]:
        return Counter(name for label in self.labels or () for name in names_of(label))


def _is_finite(item: object) -> bool:
    return is_number(item) and math.isfinite(item)


_Texts = TypeVar("_Texts", bound=TextExamples)


def text_examples(file: TextFile, options: ReadingOptions, kind: type[_Texts]) -> _Texts:
    """Read the texts or pairs of a table as examples of some kind.

    Raises:
        ValueError: The file has a different format, or a column does not exist.
    """
    table = read_table(file, options.is_header)
    options = with_likely_columns(table, options)
    found = find_columns(file, table, options) if table.rows else Columns(0)
    columns = found
    if not any(row.text(x).strip() for row in table.rows for x in found.labels):  # has no labels
        columns = dataclasses.replace(found, label=None, flags=())
    cells = [row.cell(columns.label) for row in table.rows]
    has_lists = options.multi_label and are_lists(cells)
    can_have_several = "multi_label" in task_named(options.task).options
    is_vector = can_have_several and _check_vectors(file, cells, options)
    has_flags = can_have_several and all(map(_has_flags, filter(as_string, cells)))
    notes = table.notes
    if columns.flags and "label" not in options.columns:
        named = ", ".join(map(table.name, columns.flags))
        notes += (f"read the columns of 1 and 0 as labels: {named}; --label names others",)
    numbers = NumberFormat()
    if task_named(options.task).has_scores and columns.label is not None:
        numbers = NumberFormat.of(x for cell in cells for x in listed(cell) or (cell,))
        notes += numbers.notes()
    names = ("texts", "texts_b", "negatives")
    places = dict(zip(names, (columns.text, columns.text_b, columns.negative), strict=True))
    needed = [place for place in (*places.values(), *columns.labels) if place is not None]

    def label(row: Row) -> Label | None:
        """Return the label of a row; None if the file has no labels."""
        if columns.flags:  # the label consists of the names of the columns that contain a 1
            return _set([*map(table.name, columns.flags)], [*map(row.cell, columns.flags)])
        if columns.label is None:
            return None
        value = row.cell(columns.label)
        if task_named(options.task).has_scores:
            scores = None if columns.negative is None else listed(value)
            if scores is None or len(scores) != 2:
                return numbers.checked(value)
            of_pair, of_negative = map(numbers.checked, scores)
            return of_pair - of_negative
        if is_vector:
            items = _items(value, options.separator)
            unusable_if(len(items) != len(options.label_names), "no label")
            return _set(options.label_names, items)
        if has_flags and isinstance(value, dict):
            return _set([*map(str, value)], [*value.values()])
        unusable_if(is_object(value), "object instead of a label")
        if options.multi_label:
            return _names(value, options.separator, has_lists)
        return _single_name(value, columns.text_b is not None)

    def example(row: Row) -> dict[str, object]:
        filled = [place for place, cell in enumerate(row.cells) if as_string(cell).strip()]
        is_nested = any(isinstance(row.cell(place), list | dict) for place in places.values())
        unusable_if(not filled, "empty line")
        unusable_if(len(row.cells) <= max(needed), "too few columns")
        unusable_if(is_nested, "list or object instead of a text")
        num_columns = len(row.cells if table.columns is None else table.columns)
        unusable_if(filled[-1] >= num_columns, "more columns than the header")
        for place, kind in zip(places.values(), ("text", "second text", "negative"), strict=True):
            unusable_if(place is not None and place not in filled, f"empty {kind}")
        texts = {name: row.text(place) or None for name, place in places.items()}
        return {"ids": row.text(columns.id) or str(row.line), **texts, "labels": label(row)}

    rows = ((f"line {row.line:,}", row) for row in table.rows)
    fields = {"task": options.task, "columns": found.named(table)}
    return collect(kind, file, rows, example, notes, **fields)


def _set(names: Sequence[str], values: Sequence[object]) -> tuple[str, ...]:
    """Return the names of the labels whose value is 1."""
    flags = [*map(as_flag, values)]
    unusable_if(None in flags, "a label column contains neither 1 nor 0")
    return tuple(name for name, is_set in zip(names, flags, strict=True) if is_set)


def _has_flags(cell: object) -> bool:
    return isinstance(cell, dict) and None not in map(as_flag, cell.values())


def _check_vectors(file: TextFile, cells: Sequence[object], options: ReadingOptions) -> bool:
    """Return whether labels are vectors of 1 and 0: lists of equal lengths, at least 2.

    Raises:
        ValueError: They need `label_names`, or these are too few or too many.
    """
    separator, names = options.separator if options.multi_label else "", options.label_names
    rows = (_items(cell, separator) for cell in cells if as_string(cell))
    size = len(first := next(rows, []))
    is_vector = all(len(x) == size > 1 and all(map(is_flag, x)) for x in (first, *rows))
    if is_vector != bool(names) or (is_vector and len(names) != size):
        received = f"{size} places, such as {shown(first)}" if is_vector else "no vectors"
        raise ValueError(
            f"Labels of {os.fspath(file.path)!r} that are vectors of 1 and 0 need one name for "
            "each place: --label-names a,b,c (`label_names` in Python). Received: "
            f"{received}; label_names={shown(names)}."
        )
    return is_vector


def _items(cell: object, separator: str) -> list[object]:
    """Return the items of a list, or the parts of a text; empty without a separator."""
    items = listed(cell, is_alone=True)
    if items is not None:
        return items
    return [*as_string(cell).split(separator)] if separator else []


def _names(value: object, separator: str, has_lists: bool) -> tuple[str, ...]:
    """Return the labels in a cell."""
    unusable_if(value is None, "no label")
    items = listed(value, has_lists)
    items = list(as_string(value).split(separator)) if items is None else items
    is_nested = any(isinstance(item, list | dict) for item in items)
    unusable_if(is_nested, "list or object instead of a label")
    return tuple(dict.fromkeys(filter(None, map(_name, items))))


def _single_name(value: object, is_pair: bool) -> str:
    items, name = listed(value), _name(value)
    in_brackets = isinstance(value, str) and _NAME_IN_BRACKETS.fullmatch(value.strip())
    several = "several labels (see --multi-label; `multi_label` in Python)"
    unusable_if(bool(items) and not in_brackets, several)
    unusable_if(not name or items == [], "empty label")
    has_none = is_pair and name == _NO_AGREEMENT
    unusable_if(has_none, f"label {_NO_AGREEMENT!r} (annotators disagreed)")
    return name


def _name(value: object) -> str:
    """Convert a label to its name. In tables as in JSON, 1.0 is converted to "1"."""
    return without_point(as_string(value).strip())


def folder_examples(folder: pathlib.Path, options: ReadingOptions) -> TextExamples:
    """Read a folder with one subfolder of text files per label, or with unlabeled text files.

    Raises:
        ValueError: The labels are scores, columns are given, the subfolders contain folders, or a
            file is not UTF-8.
    """
    has_labels = options.labeled is not False
    if options.given or (has_labels and task_named(options.task).has_scores):
        raise ValueError(
            f"{os.fspath(folder)!r} is a folder. Its subfolders are read as names of labels, and "
            f"it has no columns. Received: task={options.task!r}, columns {shown(options.given)}."
        )
    files = list(_labeled_files(folder, has_labels))
    skipped = _UNLABELED_FOLDER if has_labels else None
    kept = [path for label, path in files if label != skipped]

    def example(labeled_file: tuple[str, pathlib.Path]) -> dict[str, object]:
        label, path = labeled_file
        unusable_if(label == skipped, f"folder {label!r} has no label")
        text = read_file(path).text
        unusable_if(not text.strip(), "empty text")
        name = path.relative_to(folder).as_posix()
        return {"ids": name, "texts": text, "labels": label if has_labels else None}

    checksum = hashlib.sha256()
    for path in kept:
        checksum.update(f"{path.relative_to(folder).as_posix()} {sha256_of(path)}\n".encode())
    return collect(
        TextExamples,
        TextFile(folder, "", checksum.hexdigest()),
        ((path.relative_to(folder).as_posix(), (label, path)) for label, path in files),
        example,
        task=options.task,
    )


def _labeled_files(folder: pathlib.Path, labeled: bool) -> Iterator[tuple[str, pathlib.Path]]:
    """Yield each file with its folder name: the `.txt` files, or all files if there are none."""
    folders = _visible_folders(folder)
    if folders and all(map(_visible_folders, folders)):  # such as those of the IMDB reviews
        names = ", ".join(one.name for one in folders[:_SHOWN])
        raise ValueError(
            f"{os.fspath(folder)!r} must contain one folder of text files per label. Received: "
            f"folders of folders. Pass one of {names}."
        )
    if not folders and not labeled:
        folders = [folder]
    for label in folders:
        files = visible_files(label)
        for path in [path for path in files if path.suffix == ".txt"] or files:
            yield label.name, path


def _visible_folders(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(
        path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")
    )
