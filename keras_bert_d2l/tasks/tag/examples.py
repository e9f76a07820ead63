"""Read sentences with one label per word from CoNLL, CoNLL-U or a table.

A table row is a sentence (a list of words and a list of labels) or a single word.
"""

import dataclasses
import functools
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple, Self

from keras_bert_d2l.checks import IGNORED, shown
from keras_bert_d2l.data.tasks.examples import TaskExamples, are_strings, check_each, how_many
from keras_bert_d2l.data.tasks.readers.cells import (
    are_lists,
    as_string,
    collect,
    listed,
    unusable_if,
)
from keras_bert_d2l.data.tasks.readers.columns import Columns, ReadingOptions, find_columns
from keras_bert_d2l.data.tasks.readers.conll import is_conllu, read_conll, read_conllu
from keras_bert_d2l.data.tasks.readers.tables import Row, Table, dialect_of, is_json, read_table
from keras_bert_d2l.data.tasks.readers.text_file import TextFile
from keras_bert_d2l.tasks.tag.schemes import scheme_note


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

    words: tuple[tuple[str, ...], ...]
    labels: tuple[tuple[str, ...], ...] | None = None
    task: str = "tag"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_each(self, "words", are_strings, "a tuple of strings, the words of a text")
        check_each(self, "labels", are_strings, "a tuple of strings, one label name per word")
        for name, words, labels in zip(self.ids, self.words, self.labels or (), strict=False):
            if len(words) != len(labels):
                raise ValueError(
                    f"Every word must have a label. Received: {how_many(len(words), 'word')} but "
                    f"{how_many(len(labels), 'label')} in example {shown(name)}."
                )
        if not self.source:  # the reader of files adds the note itself
            notes = dict.fromkeys((*self.notes, *scheme_note(self.label_counts())))
            object.__setattr__(self, "notes", tuple(notes))

    def label_counts(self) -> Counter[str]:
        return Counter(self.label_values())

    def label_values(self) -> list[str]:
        return [label for labels in self.labels or () for label in labels]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lines(TaskExamples):
    """Texts to tag that are not yet split into words, unlike `WordExamples`."""

    sequences: ClassVar[tuple[str, ...]] = ("texts",)

    texts: tuple[str, ...]
    task: str = "tag"

    def remarks(self, columns: Mapping[str, object]) -> list[str]:
        return [
            f"read as {how_many(len(self), 'text')}, one per line; if it has words in columns, "
            "specify their column, as in --text 1"
        ]


_BLANKS = " \t\r\n"  # other whitespace may be a word, such as U+3000 in Chinese treebanks
_WORD = re.compile(rf"[^{_BLANKS}]+")
_FEW = 5  # at most one of this many rows may look like a sentence in a table of single words
_LONG = 100  # more words in a file without empty lines are reported
_OTHER_COLUMNS = re.compile(r".+[,;|][^\W\d][\w-]*")  # "Ada;B-PER"


class _Words(NamedTuple):
    """A sentence, a single word, or the end of a sentence of single words."""

    line: int
    id: str
    words: object
    labels: object
    is_end: bool = False
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class _Layout:
    """What the whole of a table says about each of its rows.

    Attributes:
        has_lists: Whether the cells of the words, and those of the labels, contain lists.
        has_labels: Whether any row has a label.
        labels_of_words: The labels of single words, which may contain spaces.
    """

    has_lists: tuple[bool, bool]
    has_labels: bool
    labels_of_words: frozenset[str]

    @classmethod
    def of(cls, rows: Sequence[_Words], has_words: bool) -> Self:
        cells = ([row.words for row in rows], [row.labels for row in rows])
        words, labels = (not has_words and are_lists(column) for column in cells)
        single = (as_string(row.labels) for row in rows if len(_strings(row.words, False)) == 1)
        return cls((words, labels), any(cells[1]), frozenset(single))

    def strings(self, row: _Words) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the words and the labels of a row that is a sentence."""
        words, labels = zip((row.words, row.labels), self.has_lists, strict=True)
        return _strings(*words), _strings(*labels)

    def is_sentence(self, row: _Words) -> bool:
        """Return whether a row has the words of a sentence, and does not look like one word."""
        if isinstance(row.words, list) or isinstance(row.labels, list) or all(self.has_lists):
            return True
        words, labels = self.strings(row)
        is_label = as_string(row.labels) in self.labels_of_words
        return len(words) > 1 and (not self.has_labels or (len(labels) > 1 and not is_label))


def word_examples(file: TextFile, options: ReadingOptions) -> WordExamples:
    """Read sentences of words.

    Raises:
        ValueError: The file has a different format, a column does not exist, or the ends of
            sentences are not marked.
    """
    table = _read(file, options)
    if table.has_words and table.columns is None and _is_counted(table.rows):
        table = dataclasses.replace(table, rows=_ended_by_numbers(table.rows))
    columns = _find_columns(file, table, options)
    rows = list(_rows(table, columns))
    while rows and rows[-1].is_end:
        rows.pop()
    if table.has_words and table.columns is None:
        _check_words(file, rows)
    layout = _Layout.of(rows, table.has_words)
    notes: tuple[str, ...] = ()
    if table.has_words:
        num_words = sum(not row.is_end for row in rows)
        rows = _joined(rows)
        if len(rows) == 1 and num_words > _LONG:
            notes = (f"read {num_words:,} words as one sentence: no empty line ends one",)
    elif len(rows) > 1:
        rows, notes = _rows_or_words(file, rows, layout, columns, "id" in options.columns)
    seen: set[str] = set()  # the labels

    def remarks() -> Iterator[str]:
        yield from (*table.notes, *notes, *scheme_note(seen))

    return collect(
        WordExamples,
        file,
        ((f"line {row.line:,}", row) for row in rows if not row.is_end),
        functools.partial(_example, layout, seen),
        remarks(),
        columns=columns.named(table),
    )


def _rows_or_words(
    file: TextFile, rows: Sequence[_Words], layout: _Layout, columns: Columns, has_chosen_id: bool
) -> tuple[list[_Words], tuple[str, ...]]:
    """Return the sentences of a table, whose rows are sentences or words, and remarks.

    The rows are words if most have one word, if almost none looks like a sentence, and if empty
    rows or ids that several rows share mark the ends of sentences.
    """
    words, mark = _with_marks(rows, columns, has_chosen_id)
    filled = [row for row in rows if not row.is_end]
    odd = [row for row in filled if layout.is_sentence(row)]
    if mark:
        are_words = _FEW * len(odd) <= len(filled)
    else:  # without labels, the rows of JSON, and those with ids, may be short texts
        may_be_texts = is_json(file) or columns.id is not None
        are_words = not odd and (layout.has_labels or not may_be_texts)
    texts = [row for row in filled if len(layout.strings(row)[0]) > 1]
    if not are_words or 2 * len(texts) > len(filled):
        return list(rows), ()
    problems = {row.line: "a row with several words among rows with one word" for row in odd}
    sentences = _joined(words, problems)
    if len(sentences) < 2 and not has_chosen_id:
        raise ValueError(
            f"{os.fspath(file.path)!r} has one word per row, but the ends of sentences are "
            "not marked. Put an empty line after each sentence, or choose the column of "
            "sentence numbers with --id (`id` in Python)."
        )
    note = f"read as one word per row; sentences end {mark}"
    if texts:
        several = how_many(len(texts), "row")
        note += f" ({several} with several words, first: line {texts[0].line:,})"
    return sentences, (note,)


def _with_marks(
    rows: Sequence[_Words], columns: Columns, has_chosen_id: bool
) -> tuple[Sequence[_Words], str]:
    """Return rows whose ids change at the ends of sentences, and what marks the ends, if anything.

    Ids that number the words of each sentence start again, and most are one more than the id before
    them. Ids that differ in all rows number the rows, so they mark nothing.
    """
    mark = "at empty rows" if any(row.is_end for row in rows) else ""
    if columns.id is None:
        return rows, mark
    pairs = [
        (before.id, row.id)
        for before, row in itertools.pairwise(rows)
        if not before.is_end and not row.is_end
    ]
    first = rows[0].id
    steps = ["+1" if _is_next(*pair) else pair[1] for pair in pairs]
    is_counted = set(steps) <= {"+1", first} and 2 * steps.count("+1") >= len(steps)
    if is_counted and any(row == first != before for before, row in pairs):
        counted = (row._replace(id=str(row.line) if row.id == first else "") for row in rows)
        return list(counted), "where the numbers of words start again"
    if any(row in (before, "") for before, row in pairs) or has_chosen_id:
        parts = Counter(id for id, _ in itertools.groupby(row.id for row in rows if row.id))
        again = sum(number > 1 for number in parts.values())
        ends = "where the id changes" + (", and at empty rows" if mark else "")
        hint = f" ({how_many(again, 'id')} in several places: sort the rows by id if they belong"
        return rows, f"{ends}{hint} together)" if again else ends
    return [row._replace(id="") for row in rows], mark


def _check_words(file: TextFile, rows: Sequence[_Words]) -> None:
    """Raise `ValueError` if most words of a CoNLL file are texts of several words."""
    unlabeled = [row for row in rows if not row.labels]
    columns = [row for row in unlabeled if _OTHER_COLUMNS.fullmatch(as_string(row.words))]
    texts = [row for row in rows if " " in as_string(row.words)]
    for found, expected, advice in (
        (columns, "columns separated by tabs or spaces", "Or name columns, and the file .csv."),
        (texts, "one word with its label per line", "Use the task 'classify' for labels of texts."),
    ):
        if 2 * len(found) > len(rows):
            received = shown(as_string(found[0].words))
            raise file.error(found[0].line, f"must have {expected}. Received: {received}. {advice}")


def _example(layout: _Layout, seen: set[str], row: _Words) -> dict[str, object]:
    words, labels = layout.strings(row)
    items = row.words if isinstance(row.words, list) else []
    are_lists = any(isinstance(word, list | dict) for word in items)
    unusable_if(are_lists, "list or object instead of a word")
    unusable_if(bool(row.problem), row.problem)
    unusable_if(not any(map(str.strip, words)), "no words")
    unusable_if(not all(words), "empty word")
    if layout.has_labels:
        unusable_if(len(words) != len(labels), "different numbers of words and labels")
        for number, label in enumerate(labels, 1):
            is_missing = label in ("", str(IGNORED))
            unusable_if(is_missing, "word without a label", f", word {number}")
    seen.update(labels)
    name = row.id or str(row.line)
    return {"ids": name, "words": words, "labels": labels if layout.has_labels else None}


def _read(file: TextFile, options: ReadingOptions) -> Table:
    if is_conllu(file):
        return read_conllu(file)
    if is_json(file):
        return read_table(file, options.is_header)
    dialect = dialect_of(file)
    if dialect.delimiter != "\t" or dialect.has_quotes:
        table = read_table(file, options.is_header)
        if len(table.first) > 1:
            has_words = table.columns is None and dialect.delimiter == "\t"
            return dataclasses.replace(table, has_words=has_words)
    return read_conll(file, options.is_header)


def _find_columns(file: TextFile, table: Table, options: ReadingOptions) -> Columns:
    """Find the columns of the words and of the labels.

    Without a header, the words are in the first column (in the second if the first numbers the
    words), and the labels are in the last column.
    """
    columns = dict(options.columns)
    if table.has_words:
        columns.pop("id", None)
    if table.has_words and table.columns is None:
        num_columns = len(table.first)
        columns.setdefault("text", 2 if num_columns > 2 and _is_counted(table.rows) else 1)
        if num_columns > 1:
            columns.setdefault("label", num_columns)
    return find_columns(file, table, dataclasses.replace(options, columns=columns))


def _is_counted(rows: Sequence[Row]) -> bool:
    """Return whether the first column numbers words, from 0 or 1, in each sentence or in all."""
    numbers = [str(row.cells[0]) for row in rows if len(row.cells) > 2]
    pairs = itertools.pairwise(numbers)
    are_next = all(number == numbers[0] or _is_next(before, number) for before, number in pairs)
    return len(set(numbers)) > 1 and numbers[0] in ("0", "1") and are_next


def _is_next(before: str, number: str) -> bool:
    are_numbers = before.isdecimal() and number.isdecimal()
    return are_numbers and int(number) == int(before) + 1


def _ended_by_numbers(rows: Sequence[Row]) -> list[Row]:
    """End a sentence also where the numbers of its words, in the first column, start again."""
    ended, id = [rows[0]], ""
    for before, row in itertools.pairwise(rows):
        if not row.cells:
            id = ""
        elif before.cells and row.cells[0] == rows[0].cells[0]:
            id = str(row.line)
            ended.append(Row(row.line, []))
        ended.append(row._replace(sentence=id or row.sentence))
    return ended


def _rows(table: Table, columns: Columns) -> Iterator[_Words]:
    missing = None
    if table.has_words and table.columns and columns.label is not None:  # CoNLL-U
        # In these columns, "_" is a value: no features.
        missing = None if table.name(columns.label) in ("FEATS", "MISC") else "_"
    for row in table.rows:
        words, labels = row.cell(columns.text), row.cell(columns.label)
        labels = None if labels == missing else labels
        is_end = not row.cells
        if not table.has_words:
            is_end = not any(map(_stripped, (words, labels)))
        name = row.sentence if columns.id is None else row.text(columns.id)
        yield _Words(row.line, name, words, labels, is_end)


def _joined(rows: Sequence[_Words], problems: Mapping[int, str] = {}) -> list[_Words]:
    """Join rows of single words. A sentence ends at an empty row or where the id changes."""
    sentences: list[_Words] = []
    words: list[object] = []
    labels: list[object] = []
    at_end = True
    for row in rows:
        if row.is_end:
            at_end = True
            continue
        if at_end or (row.id and row.id != sentences[-1].id):
            words, labels = [], []
            sentences.append(_Words(row.line, row.id, words, labels))
        if row.line in problems and not sentences[-1].problem:
            sentences[-1] = sentences[-1]._replace(problem=problems[row.line], line=row.line)
        words.append(row.words)
        labels.append(row.labels)
        at_end = False
    return sentences


def _strings(values: object, has_lists: bool) -> tuple[str, ...]:
    """Return the items of a list, or the words of a string separated by spaces."""
    items = listed(values, has_lists) if has_lists or isinstance(values, list) else None
    if items is None:
        items = list(_WORD.findall(as_string(values)))
    return tuple(map(_stripped, items))


def _stripped(value: object) -> str:
    return as_string(value).strip(_BLANKS)
