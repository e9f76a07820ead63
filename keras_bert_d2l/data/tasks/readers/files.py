"""A file of examples in, its text and its table of named columns out.

A table is tab-separated (quotes are text, but for a `.csv` in which all stand around whole cells),
comma-separated (quotes quote), JSON objects, one a line or in one list, or fastText's lines of
`__label__x text`.
"""

import ast
import contextlib
import csv
import dataclasses
import gzip
import hashlib
import io
import itertools
import json
import lzma
import math
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from keras_bert_d2l.text.corpus.reading import bare_suffix, read_lines

_UNPACK: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".xz": lzma.decompress}
_DELIMITERS = ",;|"
# A whole cell in quotes between tabs: two quotes with a tab between them are in two cells.
_QUOTED = re.compile(r'"(?<![^\t\n]")[^"\t]*(?:""[^"\t]*)*"(?=[\t\r\n]|\Z)')
_LOOKED_AT = 50  # lines, to tell what separates columns
_SHOWN = 60  # characters of a line in an error
_SHOWN_KEYS = 6  # of a JSON object in an error
_FASTTEXT = "__label__"
_FASTTEXT_LINE = re.compile(rf"\s*((?:{_FASTTEXT}\S*\s*)*)(.*)")
# A list as Python and NumPy write it: "['a', 'b']", "[3 7]"; "[OTHER]" is a name.
_LIST = re.compile(r"\[\s*(?:['\"\d-].*)?\]", re.DOTALL)
_ITEM = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s,]+", re.DOTALL)
# NaN is no JSON, but what Python writes for a missing value.
_CONSTANTS = {"NaN": None, "Infinity": math.inf, "-Infinity": -math.inf}
_JSON = json.JSONDecoder(parse_constant=_CONSTANTS.__getitem__)
_WHOLE_NUMBER = re.compile(r"-?\d+\.0+")  # as pandas writes 1 in a column with missing values


@dataclasses.dataclass(frozen=True)
class TextFile:
    """The text of a file.

    Attributes:
        path: Where it lies.
        text: All of it.
        sha256: Of its bytes as they lie there.
    """

    path: pathlib.Path
    text: str
    sha256: str

    @property
    def suffix(self) -> str:
        """The ending of its name before that of a packed file, as `".csv"`."""
        return bare_suffix(self.path)

    def lines(self) -> list[str]:
        """Its lines, without their ends."""
        # Not `splitlines`, which knows a dozen other characters that may stand within a text.
        lines = [line.removesuffix("\r") for line in self.text.split("\n")]
        return lines if lines[-1] else lines[:-1]

    def error(self, line: int, message: str) -> ValueError:
        """Returns what to raise for a line."""
        return ValueError(f"{os.fspath(self.path)!r}, line {line:,}: {message}")


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of values in columns.

    Attributes:
        columns: The names of the columns; without a header None.
        rows: The values of each row, or fewer where the file has fewer.
        lines: The line at which each row begins, from 1 on.
        first: The first row, header or not.
    """

    columns: tuple[str, ...] | None
    rows: Sequence[Sequence[Any]]
    lines: list[int]
    first: tuple[str, ...]

    def name(self, column: int) -> str:
        """What a column is called, which without a header is its number, from 1 on."""
        return str(column + 1) if self.columns is None else self.columns[column]


def read_file(path: pathlib.Path) -> TextFile:
    """Reads a UTF-8 text file; `.gz` and `.xz` are unpacked.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is not UTF-8, is no text, or is damaged.
    """
    for _ in read_lines(path):  # says what is wrong with it, in words
        pass
    packed = path.read_bytes()
    content = _UNPACK.get(path.suffix.lower(), bytes)(packed)
    return TextFile(path, content.decode("utf-8-sig"), hashlib.sha256(packed).hexdigest())


def read_table(file: TextFile, has_header: Callable[[Sequence[str]], bool]) -> Table:
    """Reads a table, of the kind that the file's name and its beginning tell.

    Args:
        file: The file.
        has_header: Tells whether the first row of a separated file holds names of columns.

    Raises:
        ValueError: The file is not what its kind has to be.
    """
    beginning = file.text[:1024].lstrip()
    if file.suffix in (".jsonl", ".ndjson", ".json") or (
        file.suffix not in (".csv", ".tsv") and beginning.startswith(("{", "[{"))
    ):
        return _json_table(file)
    if file.suffix not in (".csv", ".tsv") and beginning.startswith(_FASTTEXT):
        return _fasttext_table(file)
    if (delimiter := delimiter_of(file)) is not None:
        rows = _quoted_rows(file, delimiter)
    else:
        rows = ((n, line.split("\t")) for n, line in enumerate(file.lines(), 1))
    return _table(file, list(rows), has_header)


def json_values(file: TextFile) -> list[tuple[int, Any]]:
    """Returns the values of a file of JSON, each with its line: the items of a list, or lines.

    Raises:
        ValueError: A line is no JSON.
    """
    if file.suffix == ".json" or file.text.lstrip().startswith("["):
        try:
            whole = _JSON.decode(file.text)
        except json.JSONDecodeError as error:
            if error.msg != "Extra data":  # JSON lines under another name
                raise file.error(error.lineno, f"this is no JSON ({error.msg}).") from error
        else:
            values = whole if isinstance(whole, list) else [whole]
            return [(number, value) for number, value in enumerate(values, 1)]
    return list(_json_lines(file))


def _json_lines(file: TextFile) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(file.lines(), 1):
        if not line.strip():
            continue
        try:
            yield number, _JSON.decode(line)
        except json.JSONDecodeError as error:
            raise file.error(
                number,
                f"this is no JSON ({error.msg}): {line.strip()[:_SHOWN]!r}. Every line must be an "
                "object of its own.",
            ) from error


def _json_table(file: TextFile) -> Table:
    values = json_values(file)
    if len(values) == 1 and isinstance(values[0][1], dict):  # {"version": ..., "data": [...]}
        inner = values[0][1].get("data")
        if isinstance(inner, list):
            values = [(number, value) for number, value in enumerate(inner, 1)]
        elif _is_nested(values[0][1]):
            keys = ", ".join(map(repr, list(values[0][1])[:_SHOWN_KEYS]))
            raise file.error(
                1,
                "there must be a list of objects, one for each example, or an object on each line. "
                f"Received: one object of lists or objects, {keys}; put one of them, or its items, "
                "into a file of its own.",
            )
    for line, value in values:
        if not isinstance(value, dict):
            raise file.error(line, f"there must be a JSON object. Received: {value!r:.{_SHOWN}}.")
    columns = tuple(dict.fromkeys(name for _, value in values for name in value))
    if not columns:
        raise file.error(1, "there must be JSON objects with values. Received: none.")
    rows = [[value.get(name) for name in columns] for _, value in values]
    return Table(columns, rows, [line for line, _ in values], columns)


def _is_nested(value: dict[str, Any]) -> bool:
    """Whether an object is no example, but holds examples."""
    inner = [next(iter(one), None) if isinstance(one, list) else one for one in value.values()]
    return any(isinstance(one, list | dict) for one in inner) and all(
        isinstance(one, list | dict) for one in value.values()
    )


def _fasttext_table(file: TextFile) -> Table:
    rows, lines = [], []
    for number, line in enumerate(file.lines(), 1):
        if found := _FASTTEXT_LINE.match(line) if line.strip() else None:
            labels = [word.removeprefix(_FASTTEXT) for word in found[1].split()]
            rows.append([labels if len(labels) > 1 else "".join(labels), found[2]])
            lines.append(number)
    return Table(("label", "text"), rows, lines, ("label", "text"))


def delimiter_of(file: TextFile) -> str | None:
    """Returns what separates the columns of a file whose quotes quote; None: they are text.

    That of a `.csv` is the one that the most of its first lines have, and the most evenly: a text
    may hold more semicolons than there are commas between its columns.
    """
    if file.suffix != ".csv":
        return None
    unquoted = _QUOTED.sub("", file.text) if "\t" in file.text else ""
    lines = [line for line in unquoted.split("\n", _LOOKED_AT)[:_LOOKED_AT] if line.strip(" \r")]
    widths: dict[str, list[int]] = {}
    if lines and all("\t" in line for line in lines):  # or else they are within texts
        widths["\t"] = [line.count("\t") + 1 for line in lines]
    for delimiter in _DELIMITERS:
        widths[delimiter] = []
        with contextlib.suppress(ValueError):  # the quotes are not those of this delimiter
            for _, row in itertools.islice(_quoted_rows(file, delimiter), _LOOKED_AT):
                widths[delimiter].append(len(row))
    best = max(widths, key=lambda delimiter: _fitness(widths[delimiter]))
    if best != "\t":
        return best
    # Quotes that are text also stand within cells.
    return best if unquoted != file.text and '"' not in unquoted else None


def _fitness(widths: Sequence[int]) -> tuple[int, int, int]:
    """How many rows have several columns, how alike they are, and how many the first of them has.

    Nothing at all if most rows have one column.
    """
    several = [width for width in widths if width > 1]
    if 2 * len(several) <= len(widths):
        return 0, 0, 0
    return len(several), -len(set(several)), several[0]


def _quoted_rows(file: TextFile, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    # Strict: otherwise a quote that is never closed takes in the rest of the file.
    reader = csv.reader(io.StringIO(file.text, newline=""), delimiter=delimiter, strict=True)
    line = 1
    limit = csv.field_size_limit()
    csv.field_size_limit(max(limit, len(file.text)))  # a text may be as long as it likes
    try:
        for row in reader:
            yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise file.error(
            line,
            f"this is no CSV ({error}). A text with quotes stands in quotes, and its own are "
            'written twice: "he said ""no"""; a file whose quotes are text must be tab-separated '
            "and named .tsv.",
        ) from error
    finally:
        csv.field_size_limit(limit)


def _table(
    file: TextFile,
    numbered: list[tuple[int, list[str]]],
    has_header: Callable[[Sequence[str]], bool],
) -> Table:
    filled = [place for place, (_, row) in enumerate(numbered) if any(map(str.strip, row))]
    if not filled:
        raise file.error(1, "there must be a row. Received: nothing but separators.")
    # Empty lines at the beginning and the end are nobody's loss; those between count as rows.
    numbered = numbered[filled[0] : filled[-1] + 1]
    first = tuple(numbered[0][1])
    columns = None
    if has_header(first):
        columns = tuple(name.strip() for name in first)
        numbered = numbered[1:]
    return Table(columns, [row for _, row in numbered], [line for line, _ in numbered], first)


def sha256_of_files(paths: Iterable[pathlib.Path], folder: pathlib.Path) -> str:
    """Returns one sum for the names and the bytes of files in a folder."""
    checksum = hashlib.sha256()
    for path in paths:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        checksum.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return checksum.hexdigest()


class Dropped:
    """Counts what cannot be used, by reason."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.first: dict[str, str] = {}

    def add(self, reason: str, place: str) -> None:
        """Counts one more for a reason; `place` is where it stands, in words."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        self.first.setdefault(reason, place)

    def fields(self) -> dict[str, Any]:
        """The arguments of examples that tell of it."""
        return {"dropped": self.counts, "first_dropped": self.first}


CUT = "half a character, alone"  # why something is dropped


def is_cut(*texts: str) -> bool:
    """Whether a text has one of the two halves of a character alone, as JSON can write them.

    So end texts that another language cut off within an emoji. UTF-8 has nothing for it.
    """
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return True
    return False


def as_string(value: Any) -> str:
    """A value of a table as a string; of JSON, 1.0 is "1" and true is "true"."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def without_point(text: str) -> str:
    """A whole number as a text without its point, 1.0 as 1; any other text as it is."""
    return text.partition(".")[0] if _WHOLE_NUMBER.fullmatch(text) else text


def listed(value: Any) -> list[Any] | None:
    """Returns the items of a list, or of the text that JSON, Python or NumPy make of one.

    Of anything else None.
    """
    if isinstance(value, list):
        return value
    text = value.strip() if isinstance(value, str) else ""
    if not _LIST.fullmatch(text):
        return None
    try:
        return list(json.loads(text))
    except json.JSONDecodeError:
        return [_unquoted(item) for item in _ITEM.findall(text[1:-1])]


def _unquoted(item: str) -> str:
    if item[0] not in "'\"":
        return item
    try:
        return str(ast.literal_eval(item))
    except (SyntaxError, ValueError):
        return item[1:-1]


def cell_string(row: Sequence[Any], column: int | None) -> str:
    """Returns a cell as a string, an empty one where there is none."""
    return as_string(row[column]) if column is not None and column < len(row) else ""
