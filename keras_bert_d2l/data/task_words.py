"""A file of words in, sentences of words and labels out: CoNLL, CoNLL-U and JSON.

In the first two a word stands in each line, and a blank line after each sentence.
"""

import dataclasses
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from keras_bert_d2l.data.task_columns import Column, Wanted, as_number
from keras_bert_d2l.data.task_examples import WordExamples
from keras_bert_d2l.data.task_files import Dropped, TextFile, as_string, cell_string, read_table

_JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
_CONLLU_COLUMNS = tuple("ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC".split())
_GLOBAL_COLUMNS = "# global.columns ="  # of CoNLL-U Plus
_SENTENCE_ID = re.compile(r"#\s*(?:sent_id|id)\b\s*=?\s*(\S+)")
_NOT_A_WORD = re.compile(r"\d+[-.]\d+$")  # the ids of a range "1-2" and of an empty node "1.1"
_CONLLU_LINE = re.compile(r"\d+(?:[-.]\d+)?\t(?:[^\t]*\t){8}[^\t]*$")
_DOCUMENTS = ("-DOCSTART-", "#begin document", "#end document")  # of CoNLL-2003 and -2012
_UNKNOWN = "_"
_HAVE_UNDERSCORES = ("FEATS", "MISC")  # in which it says "none"


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence of a file.

    Attributes:
        id: What the file calls it, or the line of its first word.
        line: The line of its first word, from 1 on.
        words: The words; an empty one is missing.
        labels: Their labels; an empty one is missing.
    """

    id: str
    line: int
    words: tuple[str, ...]
    labels: tuple[str, ...]


def word_examples(file: TextFile, wanted: Wanted) -> WordExamples:
    """Reads sentences of words: JSON, CoNLL-U or CoNLL.

    Raises:
        ValueError: The file is not what it should be, or a column is not there.
    """
    columns: dict[str, str] = {}
    if file.suffix in _JSON_SUFFIXES or file.text.lstrip()[:1] == "{":
        sentences, columns = _json_sentences(file, wanted)
    elif is_conllu(file):
        sentences = list(conllu_sentences(file, wanted.text, wanted.label))
    else:
        sentences = list(conll_sentences(file, wanted.text, wanted.label))
    has_labels = wanted.labelled is not False and any(any(one.labels) for one in sentences)
    dropped = Dropped()
    kept: list[Sentence] = []
    for sentence in sentences:
        reason = None
        if not any(map(str.strip, sentence.words)):
            reason = "no word"
        elif not all(map(str.strip, sentence.words)):
            reason = "an empty word"
        elif has_labels and len(sentence.words) != len(sentence.labels):
            reason = "words and labels of different counts"
        elif has_labels and not all(sentence.labels):
            reason = "a word without a label"
        if reason is None:
            kept.append(sentence)
        else:
            dropped.add(reason, f"line {sentence.line:,}")
    return WordExamples(
        ids=tuple(sentence.id for sentence in kept),
        words=tuple(sentence.words for sentence in kept),
        labels=tuple(sentence.labels for sentence in kept) if has_labels else None,
        columns=columns,
        source=os.fspath(file.path),
        sha256=file.sha256,
        **dropped.fields(),
    )


def _json_sentences(file: TextFile, wanted: Wanted) -> tuple[list[Sentence], dict[str, str]]:
    table = read_table(file, wanted.is_header)
    columns = wanted.find(file, table)
    sentences = []
    for line, row in zip(table.lines, table.rows, strict=True):
        labels = () if columns.label is None else _strings(row[columns.label])
        name = cell_string(row, columns.id) or str(line)
        sentences.append(Sentence(name, line, _strings(row[columns.text]), labels))
    return sentences, columns.named(table)


def _strings(values: Any) -> tuple[str, ...]:
    """The items of a list, or of a string that spaces separate."""
    items = values.split() if isinstance(values, str) else values or ()
    return tuple(as_string(item).strip() for item in items)


def is_conllu(file: TextFile) -> bool:
    """Whether a file has the ten columns of CoNLL-U."""
    if file.suffix in (".conllu", ".conllup"):
        return True
    first = next((line for line in file.lines() if line and not line.startswith("#")), "")
    return bool(_CONLLU_LINE.match(first))


def conllu_sentences(
    file: TextFile, text: Column | None = None, label: Column | None = None
) -> Iterator[Sentence]:
    """Yields the sentences of a CoNLL-U file, of syntactic words.

    A range such as 1-2, the spelling of two words in one, is no word, nor is an empty node.

    Args:
        file: The file.
        text: The column of the words, by name or number; None: FORM.
        label: That of the labels; None: UPOS.

    Raises:
        ValueError: There is no such column, or a line has not as many as there must be.
    """
    lines = file.lines()
    names = _CONLLU_COLUMNS
    if lines and lines[0].startswith(_GLOBAL_COLUMNS):
        names = tuple(lines[0].removeprefix(_GLOBAL_COLUMNS).split())
    of_words = _named_column(file, names, "text", "FORM" if text is None else text)
    of_labels = _named_column(file, names, "label", "UPOS" if label is None else label)
    of_ids = names.index("ID") if "ID" in names else None
    for block in _blocks(lines, is_comment=lambda line: line.startswith("#")):
        words, labels = [], []
        for line, content in block.lines:
            cells = content.split("\t")
            if len(cells) != len(names):
                raise file.error(
                    line,
                    f"a word must have {len(names)} columns, separated by tabs. Received: "
                    f"{len(cells)}, {content[:60]!r}.",
                )
            if of_ids is not None and _NOT_A_WORD.match(cells[of_ids]):
                continue
            words.append(cells[of_words].strip())
            value = cells[of_labels].strip()
            is_missing = value == _UNKNOWN and names[of_labels] not in _HAVE_UNDERSCORES
            labels.append("" if is_missing else value)
        yield Sentence(block.id, block.lines[0][0], tuple(words), tuple(labels))


def conll_sentences(
    file: TextFile, text: Column | None = None, label: Column | None = None
) -> Iterator[Sentence]:
    """Yields the sentences of a file with a word and its labels in each line.

    Columns are separated by tabs, or by spaces where there is no tab. Lines of `-DOCSTART-` are
    left out, and so are comments: lines that begin a sentence with "#" and have not as many
    columns as the words have.

    Args:
        file: The file.
        text: The number of the column of the words, from 1 on; None: the first.
        label: That of the labels; None: the last, where there are two or more.

    Raises:
        ValueError: There is no such column.
    """
    lines = file.lines()
    counts = Counter(len(_cells(line)) for line in lines if line.strip())
    num_columns = counts.most_common(1)[0][0] if counts else 1
    of_words = _numbered_column(file, num_columns, "text", 1 if text is None else text)
    of_labels = None
    if label is not None or num_columns > 1:
        number = num_columns if label is None else label
        of_labels = _numbered_column(file, num_columns, "label", number)

    def is_comment(line: str) -> bool:
        return line.startswith("#") and len(_cells(line)) != num_columns

    for block in _blocks(lines, is_comment):
        rows = [_cells(content) for _, content in block.lines]
        yield Sentence(
            block.id,
            block.lines[0][0],
            tuple(_cell(row, of_words) for row in rows),
            tuple(_cell(row, of_labels) for row in rows),
        )


@dataclasses.dataclass(frozen=True)
class _Block:
    """The lines of a sentence, with their numbers."""

    id: str
    lines: list[tuple[int, str]]


def _blocks(lines: Sequence[str], is_comment: Callable[[str], bool]) -> Iterator[_Block]:
    id = ""
    block: list[tuple[int, str]] = []
    for number, line in enumerate([*lines, ""], 1):
        if not line.strip() or line.startswith(_DOCUMENTS):
            if block:
                yield _Block(id or str(block[0][0]), block)
            id, block = "", []
        elif not block and is_comment(line):
            found = _SENTENCE_ID.match(line)
            id = found[1] if found else id
        else:
            block.append((number, line))


def _cells(line: str) -> list[str]:
    """The columns of a line; other white space than tabs and spaces may stand in a word."""
    if "\t" in line:
        return [cell.strip(" ") for cell in line.rstrip("\t").split("\t")]
    return line.strip(" ").split(" ") if "  " not in line else re.split(" +", line.strip(" "))


def _cell(row: Sequence[str], column: int | None) -> str:
    return row[column] if column is not None and column < len(row) else ""


def _named_column(file: TextFile, names: Sequence[str], role: str, column: Column) -> int:
    by_name = {name.upper(): number for number, name in enumerate(names)}
    if str(column).upper() in by_name:
        return by_name[str(column).upper()]
    number = as_number(column)
    if number is not None and 1 <= number <= len(names):
        return number - 1
    raise ValueError(
        f"`{role}` must name a column of {str(file.path)!r}. Received: {role}={column!r}. Its "
        f"columns are {', '.join(names)}, or 1 to {len(names)}."
    )


def _numbered_column(file: TextFile, num_columns: int, role: str, column: Column) -> int:
    number = as_number(column)
    if number is not None and 1 <= number <= num_columns:
        return number - 1
    raise ValueError(
        f"`{role}` must be the number of a column of {str(file.path)!r}. Received: "
        f"{role}={column!r}. It has {num_columns} columns, numbered from 1 on, and no names."
    )
