"""Read sentences with one label per word from CoNLL, CoNLL-U or a table.

A table row is a sentence (a list of words and a list of labels) or a single word.
"""

import dataclasses
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple

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
from keras_bert_d2l.data.tasks.readers.tables import (
    Row,
    Table,
    dialect_of,
    is_conllu,
    is_json,
    read_conll,
    read_conllu,
    read_table,
)
from keras_bert_d2l.data.tasks.readers.text_file import TextFile


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


_BLANKS = " \t\r\n"  # other whitespace may be a word, such as U+3000 in Chinese treebanks
_WORD = re.compile(rf"[^{_BLANKS}]+")
_LONG = 100  # more words in a file without empty lines are reported


class _Words(NamedTuple):
    """A sentence, a single word, or the end of a sentence of single words."""

    line: int
    id: str
    words: object
    labels: object
    is_end: bool = False


def word_examples(file: TextFile, options: ReadingOptions) -> WordExamples:
    """Read sentences of words.

    Raises:
        ValueError: The file has a different format, a column does not exist, or the ends of
            sentences are not marked.
    """
    table = _read(file, options)
    if table.has_words and table.columns is None and _is_counted(table.rows):
        table = dataclasses.replace(table, rows=list(_divided(table.rows)))
    columns = _find_columns(file, table, options)
    rows = list(_rows(table, columns))
    has_lists = are_lists(row.words for row in rows), are_lists(row.labels for row in rows)
    has_labels = any(row.labels for row in rows)
    notes = table.notes
    if table.has_words:
        has_lists = False, False
        _check_words(file, rows)
        sentences = _joined(rows)
        num_words = sum(not row.is_end for row in rows)
        if len(sentences) == 1 and num_words > _LONG:
            notes += (f"read {num_words:,} words as one sentence: no empty line ends one",)
    elif any(has_lists) or len(rows) == 1:
        sentences = rows
    else:
        sentences, mark = _sentences_of_table(file, rows, columns, options, has_labels)
        notes += mark

    def example(row: _Words) -> dict[str, object]:
        words, labels = map(_strings, (row.words, row.labels), has_lists)
        items = row.words if isinstance(row.words, list) else []
        is_nested = any(isinstance(word, list | dict) for word in items)
        unusable_if(is_nested, "list or object instead of a word")
        unusable_if(not any(map(str.strip, words)), "no words")
        unusable_if(not all(words), "empty word")
        if has_labels:
            unusable_if(len(words) != len(labels), "different numbers of words and labels")
            for number, label in enumerate(labels, 1):
                is_missing = label in ("", str(IGNORED))
                unusable_if(is_missing, "word without a label", f", word {number}")
        name = row.id or str(row.line)
        return {"ids": name, "words": words, "labels": labels if has_labels else None}

    places = ((f"line {row.line:,}", row) for row in sentences if not row.is_end)
    return collect(WordExamples, file, places, example, notes, columns=columns.named(table))


def _sentences_of_table(
    file: TextFile, rows: list[_Words], columns: Columns, options: ReadingOptions, has_labels: bool
) -> tuple[list[_Words], tuple[str, ...]]:
    """Return the sentences of a table without lists, and a note if its rows are words.

    The rows are words if ids, which most rows share with the row before, or else empty rows mark
    the ends of sentences, unless most rows are sentences: several words, with as many labels.
    """
    filled = [row for row in rows if not row.is_end]
    pairs = [(before.id, row.id) for before, row in itertools.pairwise(filled)]
    shared = sum(after in (before, "") for before, after in pairs)
    mark = "at empty rows" if any(row.is_end for row in rows[:-1]) else ""
    if "id" in options.columns or (columns.id is not None and 2 * shared >= len(pairs)):
        mark = "where the id changes"
    counts = [(len(_strings(row.words)), len(_strings(row.labels))) for row in filled]
    several = sum(words > 1 and (words == labels or not has_labels) for words, labels in counts)
    if mark and 2 * several <= len(filled):
        words = rows if "id" in mark else [row._replace(id="") for row in rows]
        return _joined(words), (f"read as one word per row; sentences end {mark}",)
    if has_labels and not several:
        raise ValueError(
            f"The rows of {os.fspath(file.path)!r} must mark the ends of sentences. Received: one "
            "word per row. Put an empty line after each sentence, or choose the column of "
            "sentence numbers with --id (`id` in Python)."
        )
    return rows, ()


def _check_words(file: TextFile, rows: Sequence[_Words]) -> None:
    """Raise `ValueError` if most words of a CoNLL file are texts of several words."""
    texts = [row for row in rows if " " in as_string(row.words)]
    if texts and 2 * len(texts) >= len(rows):  # which include the end of each sentence
        raise file.error(
            texts[0].line,
            "must have one word with its label per line. Received: "
            f"{shown(as_string(texts[0].words))}. Use the task 'classify' for labels of texts.",
        )


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
        columns.setdefault("text", 2 if _is_counted(table.rows) else 1)
        if num_columns > 1:
            columns.setdefault("label", num_columns)
    return find_columns(file, table, dataclasses.replace(options, columns=columns))


def _is_counted(rows: Sequence[Row]) -> bool:
    """Return whether the first of several columns numbers the words of each sentence."""
    numbers = [str(row.cells[0]) for row in rows if len(row.cells) > 2]
    following = [str(int(number) + 1) if number.isdecimal() else "" for number in numbers]
    return numbers[:1] in (["0"], ["1"]) and all(
        number in (numbers[0], expected)
        for number, expected in zip(numbers[1:], following, strict=False)
    )


def _divided(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield counted words with a new sentence id where the numbers start again."""
    id = ""
    for before, row in itertools.pairwise([Row(0, []), *rows]):
        if not before.cells:
            id = row.sentence
        elif row.cells[:1] == rows[0].cells[:1]:
            id = str(row.line)
        yield row._replace(sentence=id)


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


def _joined(rows: Iterable[_Words]) -> list[_Words]:
    """Join rows of single words. A sentence ends at an empty row or where the id changes."""
    sentences: list[_Words] = []
    words: list[object] = []
    labels: list[object] = []
    at_end = True
    for row in rows:
        if not row.is_end:
            if at_end or (row.id and row.id != sentences[-1].id):
                words, labels = [], []
                sentences.append(_Words(row.line, row.id, words, labels))
            words.append(row.words)
            labels.append(row.labels)
        at_end = row.is_end
    return sentences


def _strings(values: object, has_lists: bool = False) -> tuple[str, ...]:
    """Return the items of a list, or the words of a string separated by spaces."""
    items = listed(values, has_lists) if has_lists or isinstance(values, list) else None
    if items is None:
        items = list(_WORD.findall(as_string(values)))
    return tuple(map(_stripped, items))


def _stripped(value: object) -> str:
    return as_string(value).strip(_BLANKS)
