"""A table, or a folder of folders, in; texts or pairs with their labels or scores out."""

import math
import os
import pathlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from keras_bert_d2l.data.tasks.examples import TextExamples
from keras_bert_d2l.data.tasks.readers.columns import Columns, Wanted
from keras_bert_d2l.data.tasks.readers.files import (
    CUT,
    Dropped,
    Table,
    TextFile,
    as_string,
    cell_string,
    is_cut,
    listed,
    read_file,
    read_table,
    sha256_of_files,
    without_point,
)
from keras_bert_d2l.data.tasks.readers.words import is_conllu

_NOT_AGREED = "-"  # the label of a pair in SNLI and MultiNLI on which annotators did not agree
_NO_NAME = "an object instead of a label"
_YES, _NO = ("1", "1.0", "true", "yes"), ("0", "0.0", "false", "no")
_FLAGS = dict.fromkeys(_YES, True) | dict.fromkeys(_NO, False)
_ENOUGH = 20  # rows, of which a first one that is alone is conspicuous
_SHOWN = 6  # folders in an error
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
    found = wanted.find(file, table) if table.rows else Columns(0, None, None, None)
    columns = _with_labels(found, table)
    if found.flags and not multi_label:
        raise ValueError(
            "Several columns of labels, of 1 or 0 each, are for `multi_label`. Received: "
            f"label={wanted.label!r}."
        )
    make = _label_maker(wanted.task, columns.text_b is not None, multi_label, separator)
    dropped = Dropped()
    ids, texts, texts_b, labels = [], [], [], []
    for line, row in zip(table.lines, table.rows, strict=True):
        text, text_b = cell_string(row, columns.text), cell_string(row, columns.text_b)
        label, reason = None, _unusable(row, table, columns, text, text_b)
        if columns.flags and reason is None:
            label, reason = _flagged(row, table, columns.flags)
        elif columns.label is not None and reason is None:
            label, reason = make(row[columns.label])
        name = cell_string(row, columns.id) or str(line)
        if reason is None and is_cut(name, text, text_b, *_names_of(label)):
            reason = CUT
        if reason is not None:
            dropped.add(reason, f"line {line:,}")
            continue
        ids.append(name)
        texts.append(text)
        texts_b.append(text_b)
        labels.append(label)
    if wanted.header is None and table.columns is None:
        _check_first_label(file, labels)
    return TextExamples(
        task=wanted.task,
        ids=tuple(ids),
        texts=tuple(texts),
        texts_b=None if columns.text_b is None else tuple(texts_b),
        labels=tuple(labels) if columns.has_labels else None,
        columns=found.named(table),
        source=os.fspath(file.path),
        sha256=file.sha256,
        **dropped.fields(),
    )


def _check_first_label(file: TextFile, labels: Sequence[Any]) -> None:
    """Raises a `ValueError` where the first label is alone among frequent ones, as a header is."""
    counts = Counter(label for label in labels if isinstance(label, str))
    rarest = counts.most_common()[-2:]
    if (
        len(labels) >= _ENOUGH
        and len(counts) > 2
        and rarest[1] == (labels[0], 1)
        and rarest[0][1] > 1
    ):
        raise file.error(
            1,
            f"the label {labels[0]!r} is here alone, so that this may be a header: say --header or "
            "--no-header (in Python `header`).",
        )


def _with_labels(columns: Columns, table: Table) -> Columns:
    """The columns; without that of the labels where it is empty in every row."""
    of_labels = columns.flags or (columns.label,)
    if any(cell_string(row, column).strip() for row in table.rows for column in of_labels):
        return columns
    return Columns(columns.text, columns.text_b, None, columns.id)


def _unusable(
    row: Sequence[Any], table: Table, columns: Columns, text: str, text_b: str
) -> str | None:
    """Why a row cannot be used, if so."""
    texts = [place for place in (columns.text, columns.text_b) if place is not None]
    used = [*columns.flags, *texts, *([] if columns.label is None else [columns.label])]
    if not any(map(_filled, row)):
        return "empty line"
    if len(row) <= max(used):
        return "too few columns"
    if any(isinstance(row[place], list | dict) for place in texts):
        return "a list or an object instead of a text"
    if table.columns is not None and any(map(_filled, row[len(table.columns) :])):
        return "more columns than the header"
    if not text.strip():
        return "empty text"
    if columns.text_b is not None and not text_b.strip():
        return "empty second text"
    return None


def _filled(value: Any) -> bool:
    return bool(as_string(value).strip())


def _flagged(
    row: Sequence[Any], table: Table, flags: Sequence[int]
) -> tuple[tuple[str, ...], str | None]:
    """The names of the columns that hold a 1, or why there are none."""
    said = {column: _FLAGS.get(as_string(row[column]).strip().lower()) for column in flags}
    if None in said.values():
        return (), "a column of a label is neither 1 nor 0"
    return tuple(table.name(column) for column, is_set in said.items() if is_set), None


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
        if isinstance(value, dict):
            return None, _NO_NAME
        parts = listed(value)
        names = map(_name, as_string(value).split(separator) if parts is None else parts)
        return tuple(dict.fromkeys(name for name in names if name)), None

    def single(value: Any) -> tuple[Any, str | None]:
        if listed(value) is not None:
            return None, "several labels (see --multi-label, in Python `multi_label`)"
        if isinstance(value, dict):
            return None, _NO_NAME
        name = _name(value)
        if not name:
            return None, "empty label"
        if is_pair and name == _NOT_AGREED:
            return None, f"label {_NOT_AGREED!r}, no agreement"
        return name, None

    return score if task == "regress" else several if multi_label else single


def _names_of(label: Any) -> Sequence[str]:
    """The names that a label consists of; none of a score."""
    return label if isinstance(label, tuple) else [label] if isinstance(label, str) else ()


def _name(value: Any) -> str:
    """The name of a label: 1.0 is "1" in tables as it is in JSON."""
    return without_point(as_string(value).strip())


def folder_examples(folder: pathlib.Path, wanted: Wanted) -> TextExamples:
    """Reads a folder with a folder of text files for each label, or without labels one of files.

    Raises:
        ValueError: Another task or columns are wanted, the folders hold folders, or a file is not
            UTF-8.
    """
    tasks = ("classify", "regress") if wanted.labeled is False else ("classify",)
    if wanted.task not in tasks or wanted.given:
        raise ValueError(
            f"{os.fspath(folder)!r} is a folder: its folders are labels, for the task 'classify' "
            f"and without columns. Received: task={wanted.task!r}"
            + (f", columns {wanted.given}." if wanted.given else ".")
        )
    dropped = Dropped()
    ids, texts, labels, paths = [], [], [], []
    for label, path in _labeled_files(folder, wanted.labeled is not False):
        name = path.relative_to(folder).as_posix()
        if label == _UNLABELLED_FOLDER and wanted.labeled is not False:
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
        task=wanted.task,
        ids=tuple(ids),
        texts=tuple(texts),
        labels=None if wanted.labeled is False else tuple(labels),
        source=os.fspath(folder),
        sha256=sha256_of_files(paths, folder),
        **dropped.fields(),
    )


def _labeled_files(folder: pathlib.Path, labeled: bool) -> Iterator[tuple[str, pathlib.Path]]:
    """Yields files with the folder they lie in: of one all `.txt`, or where there are none all."""
    folders = sorted(path for path in folder.iterdir() if path.is_dir())
    inner = [sorted(path.name for path in one.iterdir() if path.is_dir()) for one in folders]
    if folders and all(inner):  # of the IMDB reviews the one in which "train" and "test" lie
        raise ValueError(
            f"{os.fspath(folder)!r} must hold a folder of text files for each label. Received: "
            f"folders of folders; name one of {', '.join(one.name for one in folders[:_SHOWN])}, "
            f"which holds {', '.join(inner[0][:_SHOWN])}."
        )
    if not folders and not labeled:
        folders = [folder]
    for label in folders:
        files = sorted(path for path in label.rglob("*") if path.is_file())
        texts = [path for path in files if path.suffix == ".txt"]
        for path in texts or [path for path in files if not path.name.startswith(".")]:
            yield label.name, path
