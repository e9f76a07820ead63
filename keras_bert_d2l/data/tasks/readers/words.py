"""A file of words in, sentences of words and labels out: CoNLL, CoNLL-U and tables.

In the first two a word stands in each line, and a blank line after each sentence; in a table, which
is JSON or has names of columns, a list of words and one of labels, or again a word.
"""

import dataclasses
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from keras_bert_d2l.data.tasks.examples import WordExamples
from keras_bert_d2l.data.tasks.readers.columns import Column, Wanted, as_number
from keras_bert_d2l.data.tasks.readers.files import (
    CUT,
    Dropped,
    Table,
    TextFile,
    as_string,
    cell_string,
    delimiter_of,
    is_cut,
    listed,
    read_table,
)

_JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
_CONLLU_COLUMNS = tuple("ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC".split())
_GLOBAL_COLUMNS = "# global.columns ="  # of CoNLL-U Plus
_SENTENCE_ID = re.compile(r"#\s*(?:sent_id|id)\b\s*=?\s*(\S+)")
_NOT_A_WORD = re.compile(r"\d+[-.]\d+$")  # the ids of a range "1-2" and of an empty node "1.1"
_CONLLU_LINE = re.compile(r"\d+(?:[-.]\d+)?\t(?:[^\t]*\t){8}[^\t]*$")
DOCUMENTS = ("-DOCSTART-", "#begin document", "#end document")  # of CoNLL-2003 and -2012
_UNKNOWN = "_"
_BLANKS = " \t\r\n"  # other white space may be a word, as U+3000 is in Chinese treebanks
_LOOKED_AT = 100  # sentences, to tell what the first column is
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


@dataclasses.dataclass(frozen=True)
class _Row:
    """The cells of a table's row: a sentence, or a word of one."""

    line: int
    id: str
    words: Any
    labels: Any


def word_examples(file: TextFile, wanted: Wanted) -> WordExamples:
    """Reads sentences of words: a table, CoNLL-U or CoNLL.

    Raises:
        ValueError: The file is not what it should be, or a column is not there.
    """
    if is_conllu(file):
        sentences, columns = _conllu_sentences(file, wanted)
    elif (table := _table(file, wanted)) is not None:
        sentences, columns = _table_sentences(file, table, wanted)
    else:
        sentences, columns = _conll_sentences(file, wanted)
    has_labels = wanted.labeled is not False and any(any(one.labels) for one in sentences)
    dropped = Dropped()
    kept: list[Sentence] = []
    for sentence in sentences:
        reason = None
        if not any(map(str.strip, sentence.words)):
            reason = "no word"
        elif not all(sentence.words):
            reason = "an empty word"
        elif has_labels and len(sentence.words) != len(sentence.labels):
            reason = "words and labels of different counts"
        elif has_labels and not all(sentence.labels):
            reason = "a word without a label"
        elif is_cut(sentence.id, *sentence.words, *sentence.labels):
            reason = CUT
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


def _is_json(file: TextFile) -> bool:
    return file.suffix in _JSON_SUFFIXES or file.text.lstrip()[:1] == "{"


def _table(file: TextFile, wanted: Wanted) -> Table | None:
    """The table that a file is: JSON, or one with names of columns, or with commas."""
    if _is_json(file):
        return read_table(file, wanted.is_header)
    if delimiter_of(file) == "\t" and (table := read_table(file, wanted.is_header)).columns:
        return table
    lines = file.lines()
    header = next(number for number, line in enumerate(lines) if line.strip())
    first = tuple(_cells(lines[header]))
    if wanted.is_header(first):
        rows = [[] if _is_end(line) else _cells(line) for line in lines[header + 1 :]]
        return Table(first, rows, list(range(header + 2, len(lines) + 1)), first)
    if file.suffix != ".csv" or "\t" in lines[header]:
        return None
    table = read_table(file, wanted.is_header)
    return table if len(table.first) > 1 else None


def _table_sentences(
    file: TextFile, table: Table, wanted: Wanted
) -> tuple[list[Sentence], dict[str, str]]:
    """The sentences of a table, and which columns they are."""
    columns = wanted.find(file, table)
    rows = [
        _Row(
            line, cell_string(row, columns.id), _cell(row, columns.text), _cell(row, columns.label)
        )
        for line, row in zip(table.lines, table.rows, strict=True)
    ]
    if not _is_json(file) and len(rows) > 1 and all(_is_word(row.words) for row in rows):
        rows = _joined(file, rows)
    while rows and not rows[-1].words and not rows[-1].labels:
        rows.pop()
    sentences = [
        Sentence(row.id or str(row.line), row.line, _strings(row.words), _strings(row.labels))
        for row in rows
    ]
    return sentences, columns.named(table)


def _is_word(cell: Any) -> bool:
    return cell is None or (len(cell.split()) < 2 and listed(cell) is None)


def _joined(file: TextFile, rows: Sequence[_Row]) -> list[_Row]:
    """The sentences of rows with a word each: one ends at an empty row or where the id changes."""
    joined: list[_Row] = []
    ends = True
    for row in rows:
        if not row.words and not row.labels:
            ends = True
            continue
        if ends or (row.id and row.id != joined[-1].id):
            joined.append(_Row(row.line, row.id, [], []))
        joined[-1].words.append(row.words)
        joined[-1].labels.append(row.labels)
        ends = False
    if len(joined) < 2:
        raise ValueError(
            f"{os.fspath(file.path)!r} has a word in each row. Received: nothing that says where "
            "sentences end; put an empty line after each, or name a column that numbers them with "
            "--id (in Python `id`)."
        )
    return joined


def _strings(values: Any) -> tuple[str, ...]:
    """The items of a list, or of a string that spaces separate."""
    items = listed(values)
    if items is None:
        items = as_string(values).split()
    return tuple(as_string(item).strip(_BLANKS) for item in items)


def is_conllu(file: TextFile) -> bool:
    """Whether a file has the ten columns of CoNLL-U."""
    if file.suffix in (".conllu", ".conllup"):
        return True
    first = next((line for line in file.lines() if line and not line.startswith("#")), "")
    return bool(_CONLLU_LINE.match(first))


def _conllu_sentences(file: TextFile, wanted: Wanted) -> tuple[list[Sentence], dict[str, str]]:
    """The sentences of a CoNLL-U file, of syntactic words, and which columns they are.

    A range such as 1-2, the spelling of two words in one, is no word, nor is an empty node. Words
    are FORM and labels UPOS, if no others are wanted.

    Raises:
        ValueError: There is no such column, or a line has not as many as there must be.
    """
    lines = file.lines()
    names = _CONLLU_COLUMNS
    if lines and lines[0].startswith(_GLOBAL_COLUMNS):
        names = tuple(lines[0].removeprefix(_GLOBAL_COLUMNS).split())
    of_words = _named_column(file, names, "text", wanted.text, "FORM")
    of_labels = _named_column(file, names, "label", wanted.label, "UPOS")
    sentences = []
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
            words.append(cells[of_words].strip(_BLANKS))
            value = cells[of_labels].strip()
            is_missing = value == _UNKNOWN and names[of_labels] not in _HAVE_UNDERSCORES
            labels.append("" if is_missing else value)
        sentences.append(Sentence(block.id, block.lines[0][0], tuple(words), tuple(labels)))
    return sentences, {"text": names[of_words], "label": names[of_labels]}


def _conll_sentences(file: TextFile, wanted: Wanted) -> tuple[list[Sentence], dict[str, str]]:
    """The sentences of a file with a word and its labels in each line, and which columns they are.

    Columns are separated by tabs, or by spaces where there is no tab. Lines of `-DOCSTART-` are
    left out, and so are comments: lines that begin a sentence with "#" and have not as many
    columns as the words have. If no other columns are wanted, words are in the first (in the
    second, if the first counts them) and labels in the last, where there are more.

    Raises:
        ValueError: There is no such column.
    """
    lines = file.lines()
    counts = Counter(len(_cells(line)) for line in lines if line.strip())
    num_columns = counts.most_common(1)[0][0] if counts else 1

    def is_comment(line: str) -> bool:
        return line.startswith("#") and len(_cells(line)) != num_columns

    blocks = list(_blocks(lines, is_comment))
    tables = [[_cells(content) for _, content in block.lines] for block in blocks]
    usual = 2 if num_columns > 2 and _is_counted(tables[:_LOOKED_AT]) else 1
    of_words = _numbered_column(file, num_columns, "text", wanted.text, usual)
    of_labels = None
    if wanted.label is not None or num_columns > 1:
        of_labels = _numbered_column(file, num_columns, "label", wanted.label, num_columns)
    sentences = [
        Sentence(
            block.id,
            block.lines[0][0],
            tuple(_cell(row, of_words) or "" for row in rows),
            tuple(_cell(row, of_labels) or "" for row in rows),
        )
        for block, rows in zip(blocks, tables, strict=True)
    ]
    places = {"text": of_words, "label": of_labels}
    return sentences, {role: str(n + 1) for role, n in places.items() if n is not None}


def _is_counted(tables: Sequence[Sequence[Sequence[str]]]) -> bool:
    """Whether the first column of all sentences counts their words, from 0 or 1 on."""
    return max(map(len, tables), default=0) > 1 and any(
        all(row[0] == str(number) for rows in tables for number, row in enumerate(rows, start))
        for start in (0, 1)
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
        if _is_end(line):
            if block:
                yield _Block(id or str(block[0][0]), block)
            id, block = "", []
        elif not block and is_comment(line):
            found = _SENTENCE_ID.match(line)
            id = found[1] if found else id
        else:
            block.append((number, line))


def _is_end(line: str) -> bool:
    """Whether a line ends a sentence."""
    return not line.strip() or line.startswith(DOCUMENTS)


def _cells(line: str) -> list[str]:
    """The columns of a line; other white space than tabs and spaces may stand in a word."""
    if "\t" in line:
        return [cell.strip(" ") for cell in line.rstrip("\t").split("\t")]
    return line.strip(" ").split(" ") if "  " not in line else re.split(" +", line.strip(" "))


def _cell(row: Sequence[Any], column: int | None) -> Any:
    return row[column] if column is not None and column < len(row) else None


def _named_column(
    file: TextFile, names: Sequence[str], role: str, given: Column | None, usual: Column
) -> int:
    column = usual if given is None else given
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


def _numbered_column(
    file: TextFile, num_columns: int, role: str, given: Column | None, usual: int
) -> int:
    column = usual if given is None else given
    number = as_number(column)
    if number is not None and 1 <= number <= num_columns:
        return number - 1
    raise ValueError(
        f"`{role}` must be the number of a column of {str(file.path)!r}. Received: "
        f"{role}={column!r}. It has {num_columns} columns, numbered from 1 on, and no names."
    )
