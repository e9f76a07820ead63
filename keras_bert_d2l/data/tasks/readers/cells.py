"""From the cells of a table to usable examples: strings, lists, and why a row cannot be used."""

import ast
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from keras_bert_d2l.checks import has_surrogate
from keras_bert_d2l.data.tasks.examples import TaskExamples
from keras_bert_d2l.data.tasks.readers.text_file import TextFile

# A list in the notation of Python or NumPy: "['a', 'b']", "[3 7]". "[OTHER]" is a label name.
_LIST = re.compile(r"\[\s*(?:['\"\d-].*)?\]", re.DOTALL)
# The notation of Java, and of Python's sets, tuples and arrays: "[a, b]", "{'a', 'b'}".
_COLLECTION = re.compile(
    r"(?:(?:frozenset|set|array)\()?(?:\[(.*)\]|\{(.*)\}|\((.*)\))(?:,\s*dtype=.*)?\)?", re.DOTALL
)
_BRACKETS = re.compile(r"[\])}].*[\[({]", re.DOTALL)  # within "(a), (b)", two names in brackets
_ITEM = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s,]+", re.DOTALL)
_YES, _NO = ("1", "1.0", "true", "yes"), ("0", "0.0", "false", "no")
_FLAGS = dict.fromkeys(_YES, True) | dict.fromkeys(_NO, False)
_WHOLE_NUMBER = re.compile(r"-?\d+\.0+")  # how pandas writes 1 in a column with missing values


def as_string(value: object) -> str:
    """Convert a cell to a string. The JSON values 1.0, true and null give "1", "true" and ""."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def cell_string(row: Sequence[object], column: int | None) -> str:
    """Return a cell of a row as a string, or "" if there is no such cell."""
    return as_string(row[column]) if column is not None and column < len(row) else ""


def as_flag(value: object) -> bool | None:
    """Return what a cell with 1 or 0, true or false, yes or no says; None if it says neither."""
    return _FLAGS.get(as_string(value).strip().lower())


def without_point(text: str) -> str:
    """Remove the decimal point from whole numbers such as "1.0"; keep other text unchanged."""
    return text.partition(".")[0] if _WHOLE_NUMBER.fullmatch(text) else text


def listed(value: object) -> list[object] | None:
    """Return the items of a list or of its text form (JSON, Python or NumPy), or else None."""
    if isinstance(value, list):
        return value
    text = value.strip() if isinstance(value, str) else ""
    if not _LIST.fullmatch(text):
        return None
    try:
        return list(json.loads(text))
    except (json.JSONDecodeError, RecursionError):
        return [_unquoted(item) for item in _ITEM.findall(text[1:-1])]


def collected(text: str) -> list[object] | None:
    """Return the items of a collection with commas, as Java or Python print it, or else None."""
    found = _COLLECTION.fullmatch(text.strip())
    inside = next((part for part in found.groups() if part is not None), "") if found else ""
    if inside.lstrip("[({ ").startswith(("'", '"')):
        return [_unquoted(item) for item in _ITEM.findall(inside.strip("[](){} "))]
    if "," not in inside or _BRACKETS.search(inside):
        return None
    return [item.strip() for item in inside.split(",")]


def are_lists(cells: Iterable[object]) -> bool:
    """Return whether a column contains lists: most of its cells, apart from empty ones, are some.

    A single cell does not tell: "[1]" is a list of labels in one file, and a word in another.
    """
    filled = [cell for cell in cells if not isinstance(cell, str) or cell.strip()]
    filled = [cell for cell in filled if cell is not None]
    return 2 * sum(listed(cell) is not None for cell in filled) > len(filled)


def _unquoted(item: str) -> str:
    if item[0] not in "'\"":
        return item
    try:
        return str(ast.literal_eval(item))
    except (SyntaxError, ValueError):
        return item[1:-1]


_Examples = TypeVar("_Examples", bound=TaskExamples)
_Row = TypeVar("_Row")


class Unusable(Exception):
    """Raised for a row that cannot be used.

    Args:
        reason: The reason shown to the user.
        part: The part of the row that it is about, such as `", word 2"`, if it is only a part.
    """


def collect(
    kind: type[_Examples],
    file: TextFile,
    rows: Iterable[tuple[str, _Row]],
    example: Callable[[_Row], Mapping[str, object]],
    notes: Iterable[str] = (),
    **fields: object,
) -> _Examples:
    """Build an example from every usable row.

    Args:
        kind: The class of the examples.
        file: The file that was read.
        rows: The rows, each with its location as shown to the user, such as `"line 3"`.
        example: Returns `ids` and the `sequences` of `kind` for one row, or raises `Unusable`.
        notes: The notes of the examples. They are read after the rows.
        **fields: Other fields of `kind`.

    Returns:
        The examples. A sequence is None if its value is None for every example.
    """
    kept: list[Mapping[str, object]] = []
    dropped: Counter[str] = Counter()
    first_dropped: dict[str, str] = {}
    for place, row in rows:
        try:
            values = example(row)
            if any(map(has_surrogate, values.values())):
                raise Unusable("broken character (half of a surrogate pair)")
        except Unusable as error:
            dropped[error.args[0]] += 1
            first_dropped.setdefault(error.args[0], place + "".join(error.args[1:]))
        else:
            kept.append(values)
    arguments: dict[str, Any] = {
        "source": os.fspath(file.path),
        "sha256": file.sha256,
        "dropped": dict(dropped),
        "first_dropped": first_dropped,
        "notes": tuple(notes),
        **fields,
    }
    for name in ("ids", *kind.sequences):
        column = tuple(values.get(name) for values in kept)
        has_values = not kept or any(value is not None for value in column)
        arguments[name] = column if has_values else None
    return kind(**arguments)
