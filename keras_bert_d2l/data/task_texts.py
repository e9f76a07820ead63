"""A table, or a folder of folders, in; texts or pairs with their labels or scores out."""

import math
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from keras_bert_d2l.data.task_columns import Columns, Wanted
from keras_bert_d2l.data.task_examples import TextExamples
from keras_bert_d2l.data.task_files import (
    Dropped,
    Table,
    TextFile,
    as_string,
    cell_string,
    read_file,
    read_table,
    sha256_of_files,
)
from keras_bert_d2l.data.task_words import is_conllu

_NOT_AGREED = "-"  # the label of a pair in SNLI and MultiNLI on which annotators did not agree
_UNLABELLED_FOLDER = "unsup"  # of the IMDB reviews


def text_examples(
    file: TextFile, wanted: Wanted, multi_label: bool, separator: str
) -> TextExamples:
    """Reads the texts or pairs of a table.

    Args:
        file: The file.
        wanted: The columns, and the task.
        multi_label: Whether a text can have any number of labels.
        separator: What stands between them.

    Raises:
        ValueError: The file is not what it should be, or a column is not there.
    """
    if is_conllu(file):
        raise ValueError(
            f"{os.fspath(file.path)!r} is a CoNLL-U file, which is for the task 'tag'. Received: "
            f"task={wanted.task!r}."
        )
    table = read_table(file, wanted.is_header)
    columns = (
        _with_labels(wanted.find(file, table), table)
        if table.rows
        else Columns(0, None, None, None)
    )
    make = _label_maker(wanted.task, columns.text_b is not None, multi_label, separator)
    dropped = Dropped()
    ids, texts, texts_b, labels = [], [], [], []
    for line, row in zip(table.lines, table.rows, strict=True):
        text, text_b = cell_string(row, columns.text), cell_string(row, columns.text_b)
        label, reason = None, _unusable(row, table, columns, text, text_b)
        if columns.label is not None and reason is None:
            label, reason = make(row[columns.label])
        if reason is not None:
            dropped.add(reason, f"line {line:,}")
            continue
        ids.append(cell_string(row, columns.id) or str(line))
        texts.append(text)
        texts_b.append(text_b)
        labels.append(label)
    return TextExamples(
        task=wanted.task,
        ids=tuple(ids),
        texts=tuple(texts),
        texts_b=None if columns.text_b is None else tuple(texts_b),
        labels=None if columns.label is None else tuple(labels),
        source=os.fspath(file.path),
        sha256=file.sha256,
        **dropped.fields(),
    )


def _with_labels(columns: Columns, table: Table) -> Columns:
    """The columns; without that of the labels where it is empty in every row."""
    if any(cell_string(row, columns.label).strip() for row in table.rows):
        return columns
    return Columns(columns.text, columns.text_b, None, columns.id)


def _unusable(
    row: Sequence[Any], table: Table, columns: Columns, text: str, text_b: str
) -> str | None:
    """Why a row cannot be used, if so."""
    used = [place for place in (columns.text, columns.text_b, columns.label) if place is not None]
    if not any(map(_filled, row)):
        return "empty line"
    if len(row) <= max(used):
        return "too few columns"
    if table.columns is not None and any(map(_filled, row[len(table.columns) :])):
        return "more columns than the header"
    if not text.strip():
        return "empty text"
    if columns.text_b is not None and not text_b.strip():
        return "empty second text"
    return None


def _filled(value: Any) -> bool:
    return bool(as_string(value).strip())


def _label_maker(
    task: str, is_pair: bool, multi_label: bool, separator: str
) -> Callable[[Any], tuple[Any, str | None]]:
    """Returns what makes a label of a value, or says why it cannot."""

    def score(value: Any) -> tuple[Any, str | None]:
        if not as_string(value).strip():
            return None, "empty score"
        try:
            number = float(value)
        except (TypeError, ValueError):
            return None, "score is no number"
        return (number, None) if math.isfinite(number) else (None, "score is no finite number")

    def several(value: Any) -> tuple[Any, str | None]:
        if value is None:
            return None, "no label"
        parts = value if isinstance(value, list) else as_string(value).split(separator)
        names = (as_string(part).strip() for part in parts)
        return tuple(dict.fromkeys(name for name in names if name)), None

    def single(value: Any) -> tuple[Any, str | None]:
        if isinstance(value, list):
            return None, "several labels (see `multi_label`)"
        name = as_string(value).strip()
        if not name:
            return None, "empty label"
        if is_pair and name == _NOT_AGREED:
            return None, f"label {_NOT_AGREED!r}, no agreement"
        return name, None

    return score if task == "regress" else several if multi_label else single


def folder_examples(folder: pathlib.Path, wanted: Wanted) -> TextExamples:
    """Reads a folder that has a folder of text files for each label.

    Raises:
        ValueError: Another task or columns are wanted, or a file is not UTF-8.
    """
    if wanted.task != "classify" or wanted.given:
        raise ValueError(
            f"{os.fspath(folder)!r} is a folder: its folders are labels, for the task 'classify' "
            f"and without columns. Received: task={wanted.task!r}"
            + (f", columns {wanted.given}." if wanted.given else ".")
        )
    dropped = Dropped()
    ids, texts, labels, paths = [], [], [], []
    for label, path in _labelled_files(folder):
        name = path.relative_to(folder).as_posix()
        if label == _UNLABELLED_FOLDER:
            dropped.add(f"folder {label!r}, no label", name)
            continue
        paths.append(path)
        text = read_file(path).text
        if text.strip():
            ids.append(name)
            texts.append(text)
            labels.append(label)
        else:
            dropped.add("empty text", name)
    return TextExamples(
        ids=tuple(ids),
        texts=tuple(texts),
        labels=tuple(labels) if wanted.labelled else None,
        source=os.fspath(folder),
        sha256=sha256_of_files(paths, folder),
        **dropped.fields(),
    )


def _labelled_files(folder: pathlib.Path) -> Iterator[tuple[str, pathlib.Path]]:
    """Yields files with the folder they lie in: of one all `.txt`, or where there are none all."""
    for label in sorted(path for path in folder.iterdir() if path.is_dir()):
        files = sorted(path for path in label.rglob("*") if path.is_file())
        texts = [path for path in files if path.suffix == ".txt"]
        for path in texts or [path for path in files if not path.name.startswith(".")]:
            yield label.name, path
