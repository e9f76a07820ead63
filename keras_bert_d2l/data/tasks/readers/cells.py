"""Convert table cells to strings and lists."""

import ast
import json
import re
from collections.abc import Sequence

# A list in the notation of Python or NumPy: "['a', 'b']", "[3 7]". "[OTHER]" is a label name.
_LIST = re.compile(r"\[\s*(?:['\"\d-].*)?\]", re.DOTALL)
_ITEM = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s,]+", re.DOTALL)
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


def _unquoted(item: str) -> str:
    if item[0] not in "'\"":
        return item
    try:
        return str(ast.literal_eval(item))
    except (SyntaxError, ValueError):
        return item[1:-1]
