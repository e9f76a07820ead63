"""Values of table cells: conversion to strings, lists and whole numbers."""

import ast
import json
import re
from collections.abc import Sequence

# A list as Python and NumPy write it: "['a', 'b']", "[3 7]". "[OTHER]" is a name.
_LIST = re.compile(r"\[\s*(?:['\"\d-].*)?\]", re.DOTALL)
_ITEM = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s,]+", re.DOTALL)
_WHOLE_NUMBER = re.compile(r"-?\d+\.0+")  # as pandas writes 1 in a column with missing values


def as_string(value: object) -> str:
    """Return a cell as a string. Of JSON values, 1.0 is "1", true is "true" and null is ""."""
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
    """Return "1" for "1.0", and any text that is not a whole number unchanged."""
    return text.partition(".")[0] if _WHOLE_NUMBER.fullmatch(text) else text


def listed(value: object) -> list[object] | None:
    """Return the items of a list, or of its text form in JSON, Python or NumPy; otherwise None."""
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
