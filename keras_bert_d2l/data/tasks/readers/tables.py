"""Read TSV, CSV, JSON, fastText, CoNLL and CoNLL-U files as tables with rows and named columns.

The columns of a `.csv` file are separated by commas, semicolons, pipes or tabs, and those of other
tables by tabs. Whether quotes enclose cells or are part of the text depends on the whole file.
JSON is one object per line, or one list of objects. A fastText line is `__label__x text`. CoNLL has
one word per line with its labels, and a blank line after each sentence.
"""

import contextlib
import csv
import dataclasses
import io
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from keras_bert_d2l.checks import shown
from keras_bert_d2l.data.tasks.readers.cells import as_string
from keras_bert_d2l.data.tasks.readers.text_file import TextFile

_SEPARATED = (".csv", ".tsv")
_DELIMITERS = ",;|"
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?[,; ]*\r?\n', re.IGNORECASE)  # Excel's first line
_QUOTED_CELL = re.compile(r'"(?:[^"\\]|""|\\.)*\\?"')
_NEEDS_QUOTES = re.compile(r'..*(?:""|\\"|[,;]).*.')
_SAMPLE = 50  # lines used to detect the delimiter
_FASTTEXT = "__label__"
_FASTTEXT_LINE = re.compile(rf"\s*((?:{_FASTTEXT}\S*\s*)*)(.*)")
# NaN is not JSON, but Python writes it for a missing value.
_CONSTANTS = {"NaN": None, "Infinity": math.inf, "-Infinity": -math.inf}
_JSON = json.JSONDecoder(parse_constant=_CONSTANTS.__getitem__)
DOCUMENTS = ("-DOCSTART-", "#begin document", "#end document")  # in CoNLL-2003 and -2012
_CONLLU_COLUMNS = tuple("ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC".split())
_GLOBAL_COLUMNS = "# global.columns ="  # the first line of CoNLL-U Plus
_CONLLU_LINE = re.compile(r"\d+(?:[-.]\d+)?\t(?:[^\t]*\t){8}[^\t]*$")
_NOT_A_WORD = re.compile(r"\d+[-.]\d+$")  # a multiword-token range "1-2" or an empty node "1.1"
_SENTENCE_ID = re.compile(r"#\s*(?:sent_id|id)\b\s*=?\s*(\S+)")


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        line: The number of the line at which the row begins, from 1.
        cells: The cells; there may be fewer or more than the table has columns.
        sentence: The id of the sentence, in formats with one word per row.
    """

    line: int
    cells: Sequence[object]
    sentence: str = ""

    def cell(self, column: int | None) -> object:
        """Return the cell in a column, or None if there is no such cell."""
        return self.cells[column] if column is not None and column < len(self.cells) else None

    def text(self, column: int | None) -> str:
        """Return the cell in a column as a string."""
        return as_string(self.cell(column))


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of cells.

    Attributes:
        columns: The names of the columns; None if there is no header.
        rows: The rows.
        first: The column names, or the cells of the first row if there is no header.
        has_words: Whether the format always has one word per row.
        notes: What was decided about the format where others would be possible.
    """

    columns: tuple[str, ...] | None
    rows: Sequence[Row]
    first: tuple[str, ...]
    has_words: bool = False
    notes: tuple[str, ...] = ()

    def name(self, column: int) -> str:
        """Return the name of a column, or its number (from 1) if there is no header."""
        return str(column + 1) if self.columns is None else self.columns[column]


def read_table(file: TextFile, has_header: Callable[[Sequence[str]], bool]) -> Table:
    """Read a table. Its format is detected from the file name and the first characters.

    Args:
        file: The file.
        has_header: Returns whether the first row of a CSV or TSV file contains column names.

    Raises:
        ValueError: The file does not have the detected format.
    """
    if is_json(file):
        return _json_table(file)
    if file.suffix not in _SEPARATED and file.text.lstrip().startswith(_FASTTEXT):
        return _fasttext_table(file)
    dialect = dialect_of(file)
    rows = list(dialect.rows(file))
    filled = [
        place for place, row in enumerate(rows) if any(str(cell).strip() for cell in row.cells)
    ]
    if not filled:
        raise file.error(1, "a table must have at least one row. Received: only separators.")
    # Empty lines at the beginning and the end are ignored; those in between count as rows.
    rows = rows[filled[0] : filled[-1] + 1]
    first = tuple(map(str, rows[0].cells))
    if has_header(first):
        return Table(tuple(name.strip() for name in first), rows[1:], first, notes=dialect.notes)
    return Table(None, rows, first, notes=dialect.notes)


def is_json(file: TextFile) -> bool:
    """Return whether the name of a file, or else its beginning, indicates JSON."""
    if file.suffix in (*_SEPARATED, ".json", ".jsonl", ".ndjson"):
        return file.suffix not in _SEPARATED
    return file.text.lstrip().startswith(("{", "[{"))


def json_values(file: TextFile) -> list[tuple[int, object]]:
    """Return the items of a JSON list or of JSON lines, each with its number, from 1.

    Raises:
        ValueError: A line is not JSON.
    """
    text, start = file.text.rstrip(), len(file.text) - len(file.text.lstrip())
    if file.suffix == ".json" or text[start : start + 1] == "[":
        whole, end = _parsed(file, 1, _JSON.raw_decode, text, start)
        if end == len(text):  # otherwise, these are JSON lines in a file named .json
            return list(enumerate(whole if isinstance(whole, list) else [whole], 1))
    lines = ((number, line) for number, line in enumerate(file.lines(), 1) if line.strip())
    return [(number, _parsed(file, number, _JSON.decode, line)) for number, line in lines]


def _parsed(file: TextFile, line: int, parse: Callable[..., Any], *text: Any) -> Any:
    """Call a function that parses the JSON that begins in a line."""
    try:
        return parse(*text)
    except RecursionError as error:
        raise file.error(line, "this JSON is nested too deeply.") from error
    except ValueError as error:
        line += getattr(error, "lineno", 1) - 1
        why = getattr(error, "msg", error)
        advice = "A file has one JSON list, or one JSON object per line."
        raise file.error(line, f"this is not JSON ({why}). {advice}") from error


def _json_table(file: TextFile) -> Table:
    values = json_values(file)
    if len(values) == 1 and isinstance(values[0][1], dict):
        data = values[0][1].get("data")  # {"version": ..., "data": [...]}
        values = list(enumerate(data, 1)) if isinstance(data, list) else values
    records: list[tuple[int, dict[str, object]]] = []
    for line, value in values:
        if not isinstance(value, dict):
            raise file.error(line, f"must be a JSON object. Received: {shown(value)}.")
        records.append((line, value))
    columns = tuple(dict.fromkeys(name for _, record in records for name in record))
    if not columns:
        raise file.error(1, "the file must contain JSON objects with values. Received: none.")
    rows = [Row(line, [record.get(name) for name in columns]) for line, record in records]
    return Table(columns, rows, columns)


def _fasttext_table(file: TextFile) -> Table:
    rows, columns = [], ("label", "text")
    for number, line in enumerate(file.lines(), 1):
        if found := _FASTTEXT_LINE.match(line) if line.strip() else None:
            labels = [word.removeprefix(_FASTTEXT) for word in found[1].split()]
            rows.append(Row(number, [labels if len(labels) > 1 else "".join(labels), found[2]]))
    return Table(columns, rows, columns)


class Dialect(NamedTuple):
    """How the lines of a table are divided into cells.

    Attributes:
        delimiter: What separates cells.
        has_quotes: Whether quotes enclose cells; otherwise, they are part of the text.
        escape: What stands before a quote within a cell, besides another quote.
        start: The offset of the first row; a line such as `sep=;` stands before it.
        notes: What was decided.
    """

    delimiter: str
    has_quotes: bool = True
    escape: str | None = None
    start: int = 0
    notes: tuple[str, ...] = ()

    def rows(self, file: TextFile) -> Iterator[Row]:
        """Yield the rows of a file.

        Raises:
            ValueError: The quotes do not fit.
        """
        line = first = 2 if self.start else 1
        if not self.has_quotes:
            for number, row in enumerate(file.lines()[first - 1 :], first):
                yield Row(number, row.split(self.delimiter))
            return
        # Strict mode, because an unclosed quote would otherwise swallow the rest of the file.
        text = io.StringIO(file.text[self.start :], newline="")
        reader = csv.reader(text, delimiter=self.delimiter, escapechar=self.escape, strict=True)
        limit = csv.field_size_limit(max(csv.field_size_limit(), len(file.text)))  # of long texts
        try:
            for cells in reader:
                yield Row(line, cells)
                line = first + reader.line_num
        except csv.Error as error:
            raise file.error(
                line,
                f"this is not CSV ({error}). Quote a cell that contains quotes, and double the "
                'quotes inside it: "he said ""no""". If quotes are part of the text, choose '
                "--no-quotes (quotes=False in Python).",
            ) from error
        finally:
            csv.field_size_limit(limit)


def dialect_of(file: TextFile) -> Dialect:
    """Return the dialect of a table, which its text decides; its name only tells the delimiters."""
    found = _SEPARATOR_LINE.match(file.text)
    dialect = Dialect("\t", start=found.end() if found else 0)
    if found:
        dialect = dialect._replace(delimiter=found[1])
    elif file.suffix == ".csv":
        dialect = dialect._replace(delimiter=_delimiter(file))
    has_tabs = dialect.delimiter == "\t"
    if '"' not in file.text or file.quotes is False:
        return dialect._replace(has_quotes=not has_tabs and file.quotes is not False)
    if '\\"' in file.text:  # an escape if all other quotes enclose cells
        end = re.escape(dialect.delimiter)
        enclosed = rf'(?<![^{end}\n])"[^"]*"(?=[{end}\r\n]|\Z)'
        others = re.sub(enclosed, "", file.text.replace('\\"', ""))
        dialect = dialect._replace(escape=None if '"' in others else "\\")
    if file.quotes or not has_tabs:
        return dialect
    if dialect.escape or _are_cells_quoted(file, dialect):
        return dialect._replace(notes=("read quotes as marks around cells",))
    return dialect._replace(has_quotes=False, notes=("read quotes as text",))


def _are_cells_quoted(file: TextFile, dialect: Dialect) -> bool:
    """Return whether a program quoted the cells of a table that is separated by tabs.

    If all lines have the same number of tabs, all cells with quotes must be enclosed by them, and
    must need it, unless there are as many as lines. Otherwise, quotes that enclose line breaks and
    tabs must give rows of equal length, and no row may contain several complete lines.
    """
    lines = [line for line in file.text[dialect.start :].split("\n") if line.strip()]
    tabs = [line.count("\t") for line in lines]
    if len(set(tabs)) > 1:
        with contextlib.suppress(ValueError):  # the quotes do not fit
            widths = [len(row.cells) for row in dialect.rows(file) if row.cells]
            return len(set(widths)) == 1 and tabs.count(widths[0] - 1) <= len(widths)
        return False
    quoted = (line.removesuffix("\r").split("\t") for line in lines if '"' in line)
    cells = [cell for cells in quoted for cell in cells if '"' in cell]
    if not all(map(_QUOTED_CELL.fullmatch, cells)):
        return False
    if tabs[0] and len(cells) >= len(lines):
        return True
    need = [bool(_NEEDS_QUOTES.fullmatch(cell)) for cell in cells if cell != '""']
    return any(need) and all(need)


def _delimiter(file: TextFile) -> str:
    """Return the delimiter of a CSV file.

    It is the one that splits the most of the first rows, and most evenly. The raw count is not
    enough: a text may contain more semicolons than there are commas between columns. Tabs must be
    in all rows or lines; otherwise, they are within texts.
    """
    widths: dict[str, list[int]] = {}
    for delimiter in ("\t", *_DELIMITERS):
        widths[delimiter] = []
        with contextlib.suppress(ValueError):  # the quotes do not fit this delimiter
            for row in itertools.islice(Dialect(delimiter).rows(file), _SAMPLE):
                widths[delimiter].append(len(row.cells))
    lines = [line for line in file.text.split("\n", _SAMPLE)[:_SAMPLE] if line.strip(" \r")]
    if all("\t" in line for line in lines):
        widths["\t"] = [line.count("\t") + 1 for line in lines]
    elif 1 in widths["\t"]:
        widths["\t"] = []
    best = max(widths, key=lambda delimiter: _fitness(widths[delimiter]))
    return best if _fitness(widths[best])[0] else _DELIMITERS[0]


def _fitness(widths: Sequence[int]) -> tuple[int, int, int]:
    """Rate a delimiter by the number of cells in each row.

    The criteria are, in this order: how many rows have several cells, how even their numbers of
    cells are, and the number of cells in the first of them. The rating is 0 if at least half of the
    rows have a single cell.
    """
    several = [width for width in widths if width > 1]
    if 2 * len(several) <= len(widths):
        return 0, 0, 0
    return len(several), -len(set(several)), several[0]


def is_conllu(file: TextFile) -> bool:
    """Return whether a file has the ten columns of CoNLL-U, or is CoNLL-U Plus."""
    first = next((line for line in file.lines() if line and not line.startswith("#")), "")
    return file.suffix in (".conllu", ".conllup") or bool(_CONLLU_LINE.match(first))


def read_conllu(file: TextFile) -> Table:
    """Read the syntactic words of a CoNLL-U file; a row without cells ends each sentence.

    Multiword-token ranges such as 1-2 and empty nodes are skipped. The first line of CoNLL-U Plus
    names the columns.

    Raises:
        ValueError: A line has too few or too many columns.
    """
    first, names = next(iter(file.lines()), ""), _CONLLU_COLUMNS
    if first.startswith(_GLOBAL_COLUMNS):
        names = tuple(first.removeprefix(_GLOBAL_COLUMNS).split())
    id_column = names.index("ID") if "ID" in names else None

    def is_comment(line: str) -> bool:  # without a column of numbers, "#" may be a word
        return line.startswith("#") and (id_column == 0 or line.count("\t") != len(names) - 1)

    rows: list[Row] = []
    for row in _sentences(file, is_comment, lambda line: line.split("\t")):
        if len(row.cells) not in (0, len(names)):
            raise file.error(
                row.line,
                f"a word must have {len(names)} columns, separated by tabs. Received: "
                f"{len(row.cells)}, {shown(row.cells)}.",
            )
        if not _NOT_A_WORD.match(row.text(id_column)):
            rows.append(row)
    return Table(names, rows, names, has_words=True)


def read_conll(file: TextFile, has_header: Callable[[Sequence[str]], bool]) -> Table:
    """Read a file with one word and its labels per line; a row without cells ends each sentence.

    Columns are separated by tabs, or by spaces in a line without tabs. A line at the beginning of a
    sentence that starts with "#" is a comment if it has more or fewer columns than most words, if
    it is a key and a value ("# sent_id = 12"), if it lacks the tabs of all other lines, or if a
    space follows and its last column is no label of the file ("# newdoc"). Otherwise it is a word.
    """
    cells_of = {line: _cells(line) for line in file.lines() if line.strip()}
    words = [line for line in cells_of if not line.startswith(("#", *DOCUMENTS))]
    labels = {cells_of[line][-1] for line in words}
    counts = Counter(len(cells_of[line]) for line in words or cells_of)
    num_columns = max(counts, key=lambda number: (counts[number], number))
    has_tabs = bool(words) and all("\t" in line for line in words)

    def is_comment(line: str) -> bool:
        cells = cells_of[line]
        return line.startswith("#") and (
            len(cells) != num_columns
            or " = " in line
            or (has_tabs and "\t" not in line)
            or (line.lstrip("#").startswith(" ") and cells[-1] not in labels)
        )

    rows = list(_sentences(file, is_comment, cells_of.__getitem__))
    header = tuple(map(str, rows[0].cells)) if rows else ()
    if header and has_header(header):
        return Table(header, rows[1:], header)
    whole = (tuple(map(str, row.cells)) for row in rows if len(row.cells) == num_columns)
    return Table(None, rows, next(whole, ("",) * num_columns), has_words=True)


def _sentences(
    file: TextFile, is_comment: Callable[[str], bool], split: Callable[[str], Sequence[str]]
) -> Iterator[Row]:
    """Yield the rows of the lines that are words; a row without cells ends a sentence.

    The id of a sentence is given in a comment; otherwise, it is the number of its first line.
    """
    id, in_sentence = "", False
    for number, line in enumerate([*file.lines(), ""], 1):
        if not line.strip() or line.startswith(DOCUMENTS):
            if in_sentence:
                yield Row(number, [], id)
            id, in_sentence = "", False
        elif not in_sentence and is_comment(line):
            found = _SENTENCE_ID.match(line)
            id = found[1] if found else id
        else:
            id, in_sentence = id or str(number), True
            yield Row(number, split(line), id)


def _cells(line: str) -> list[str]:
    """Split a line into columns at tabs or spaces. Other whitespace may be part of a word."""
    if "\t" in line:
        return [cell.strip(" ") for cell in line.rstrip("\t").split("\t")]
    return line.strip(" ").split(" ") if "  " not in line else re.split(" +", line.strip(" "))
