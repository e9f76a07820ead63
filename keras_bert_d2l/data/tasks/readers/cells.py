"""From the cells of a table to usable examples: strings, lists, and why a row cannot be used."""

import ast
import contextlib
import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Self, TypeVar

from keras_bert_d2l.checks import shown
from keras_bert_d2l.data.tasks.examples import TaskExamples
from keras_bert_d2l.data.tasks.readers.text_file import TextFile
from keras_bert_d2l.text_arguments import has_surrogate

_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
# What NumPy prints around arrays and scalars.
_NUMPY = re.compile(
    rf"\barray\((\[.*?\])(?:,\s*dtype=[^)]+)?\)|\bnp\.\w+\(({_QUOTED}|[^()'\"]*)\)", re.DOTALL
)
_CALL = re.compile(r"\w+\(([\[{].*)\)", re.DOTALL)  # "frozenset({'a'})", "tensor([1])"
_COLLECTION = re.compile(  # of R, Scala and Spark
    r"(?:c|List|Set|ArrayBuffer|ArraySeq|WrappedArray)(\(.*\))", re.DOTALL
)
_EMPTY = ("set()", "frozenset()", "character(0)")
_KEY = re.compile(r"\s*('[^']*'|\"[^\"]*\")\s*:")  # in an object
_NUMBERS = re.compile(r"[-+]?\d[\d.]*(?:[\s,]+[-+]?\d[\d.]*)*[\s,]*")
_ITEM = re.compile(rf"{_QUOTED}|[^\s,]+", re.DOTALL)
_YES, _NO = ("1", "1.0", "true", "yes", "t", "y"), ("0", "0.0", "false", "no", "f", "n")
_FLAGS = dict.fromkeys(_YES, True) | dict.fromkeys(_NO, False)
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?", re.IGNORECASE)
_THOUSANDS, _GROUPS = (
    re.compile(rf"[-+]?[1-9][0-9]?[0-9]?(?:{x}[0-9]{{3}})+") for x in (",", r"\.")
)
# Hyphens, the figure dash, the en dash, the minus sign, and the small and the wide hyphen-minus.
_MINUS = dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2212, 0xFE63, 0xFF0D), "-")
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


def as_flag(value: object) -> bool | None:
    """Return what a cell with 1 or 0, true or false, yes or no says; None if it says neither."""
    return _FLAGS.get(as_string(value).strip().lower().removesuffix("."))


def is_flag(value: object) -> bool:
    """Return whether a cell is 1 or 0, true or false."""
    text = without_point(as_string(value).strip().lower()).removesuffix(".")
    return text in ("0", "1", "true", "false")


class NumberFormat(NamedTuple):
    """How the numbers of a column are written.

    Attributes:
        has_comma: Whether a comma separates the decimals, as in "3,5".
        is_percent: Whether all of them are percentages: "40%" is 0.4.
        is_mixed: Whether some have a comma and no format fits all, so that "1.000" may be 1000.
    """

    has_comma: bool = False
    is_percent: bool = False
    is_mixed: bool = False

    @classmethod
    def of(cls, cells: Iterable[object]) -> Self:
        """Return the format that fits all cells with digits: by default, that of Python.

        "1,000" may be 1 or 1000. It is read as 1 only if another cell of the column, such as "2,5",
        can have no other meaning than that of a decimal comma.
        """
        texts = [as_string(cell) for cell in cells]
        texts = [text for text in texts if any(map(str.isdecimal, text))]
        for found in (cls(), cls(True), cls(False, True), cls(True, True)):
            commas = (x for x in texts if "," in x and not _THOUSANDS.fullmatch(x.strip(" %")))
            is_clear = not found.has_comma or any(commas)
            if is_clear and all(found.value(text) is not None for text in texts):
                return found
        return cls(is_mixed=any("," in text for text in texts))

    def value(self, cell: object) -> float | None:
        """Return the number in a cell, or None if there is none in this format."""
        text = as_string(cell).strip().translate(_MINUS)
        if self.has_comma:
            text = text.translate({ord(","): ".", ord("."): ","})
        if self.is_percent:
            text = text.removesuffix("%").rstrip() if text.endswith("%") else ""
        is_number = _NUMBER.fullmatch(text) and not (self.is_mixed and _GROUPS.fullmatch(text))
        number = float(text) if is_number else math.inf
        return number / (100 if self.is_percent else 1) if math.isfinite(number) else None

    def checked(self, cell: object, name: str = "score") -> float:
        """Return the number in a cell, or raise `Unusable`."""
        number = self.value(cell)
        if number is None:
            raise Unusable(f"{name} is not a finite number", f", {shown(cell)}")
        return number

    def notes(self) -> tuple[str, ...]:
        """Return what is reported about a format other than that of Python."""
        shown_numbers = ("", "3,5 as 3.5", "40% as 0.4", "3,5% as 0.035")
        told = shown_numbers[self.has_comma + 2 * self.is_percent]
        return (f"read numbers such as {told}",) if told else ()


def without_point(text: str) -> str:
    """Remove the decimal point from whole numbers such as "1.0"; keep other text unchanged."""
    return text.partition(".")[0] if _WHOLE_NUMBER.fullmatch(text) else text


def without_numpy(text: str) -> str:
    """Remove what NumPy prints around lists and values, as in "array([1])" and "np.str_('a')"."""
    return _NUMPY.sub(lambda found: found[1] or found[2], text)


def listed(value: object, is_alone: bool = False) -> list[object] | None:
    """Return the items of a list, or of its text form in JSON or another notation, or else None.

    The notations are those of Python, NumPy, Java, PostgreSQL, Scala and R, such as "['a', 'b']",
    "{'a', 'b'}", "[3 7]", "[a, b]", "{a,b}", "List(a, b)" and 'c("a", "b")'.

    Args:
        value: The cell.
        is_alone: Whether a single name in brackets is a list. "[OTHER]" may be a label name.
    """
    if not isinstance(value, str):
        return value if isinstance(value, list) else None
    text = without_numpy(value.strip())
    collection = _COLLECTION.fullmatch(text)
    text = collection[1] if collection else _CALL.sub(r"\1", text)
    if text in _EMPTY:
        return []
    if text[:1] + text[1:][-1:] not in ("[]", "{}", "()") or is_object(text):
        return None
    inside = text[1:-1].strip()
    is_numbers = _NUMBERS.fullmatch(inside)
    if text[0] == "[" and (is_numbers or inside[:1] in ('"', "{", "[")):
        with contextlib.suppress(json.JSONDecodeError, RecursionError):
            return list(json.loads(text))
    if not inside or is_numbers or inside[0] in "'\"":
        return [_unquoted(item) for item in _ITEM.findall(inside)]
    if not collection:
        if text[0] in inside or text[-1] in inside:  # "(a), (b)" are two names in brackets
            return None
        if "," not in inside and not is_alone:
            return None
    return [_unquoted(item.strip()) for item in inside.split(",")]


def is_object(value: object) -> bool:
    """Return whether a value is an object, or its text form in JSON or Python."""
    text = value.strip() if isinstance(value, str) else ""
    return isinstance(value, dict) or (text[:1] == "{" and bool(_KEY.match(text[1:])))


def are_lists(cells: Iterable[object]) -> bool:
    """Return whether a column contains lists: most of its cells, apart from empty ones, are some.

    A single cell does not tell: "[1]" is a list of labels in one file, and a word in another.
    """
    filled = [cell for cell in cells if not isinstance(cell, str) or cell.strip()]
    filled = [cell for cell in filled if cell is not None]
    lists = [cell for cell in filled if listed(cell, is_alone=True) is not None]
    return 2 * len(lists) > len(filled) and any(listed(cell) is not None for cell in lists)


def _unquoted(item: str) -> str:
    try:
        return str(ast.literal_eval(item)) if item[:1] in ("'", '"') else item
    except (SyntaxError, ValueError):
        return item


_Examples = TypeVar("_Examples", bound=TaskExamples)
_Row = TypeVar("_Row")


class Unusable(Exception):
    """Raised for a row that cannot be used.

    Args:
        reason: The reason shown to the user.
        part: The part of the row that it is about, such as `", word 2"`, if it is only a part.
    """


def unusable_if(is_unusable: bool, reason: str, part: str = "") -> None:
    """Raise `Unusable` with its arguments if a row cannot be used."""
    if is_unusable:
        raise Unusable(reason, part)


def collect(
    kind: type[_Examples],
    file: TextFile,
    rows: Iterable[tuple[str, _Row]],
    example: Callable[[_Row], Mapping[str, object]],
    notes: tuple[str, ...] = (),
    **fields: Any,
) -> _Examples:
    """Build an example from every usable row.

    Args:
        kind: The class of the examples.
        file: The file that was read.
        rows: The rows, each with its location as shown to the user, such as `"line 3"`.
        example: Returns `ids` and the `sequences` of `kind` for one row, or raises `Unusable`.
        notes: The notes of the examples.
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
    found: dict[str, Any] = {"dropped": dict(dropped), "first_dropped": first_dropped}
    for name in ("ids", *kind.sequences):
        column = tuple(values.get(name) for values in kept)
        has_values = not kept or any(value is not None for value in column)
        found[name] = column if has_values else None
    source = os.fspath(file.path)
    return kind(source=source, sha256=file.sha256, notes=notes, **found, **fields)
