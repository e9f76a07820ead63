"""How the results of functions that ask a model look in a terminal and in a notebook."""

import dataclasses
import html
import reprlib
from typing import Any, TypeVar

_MOST_ROWS = 100  # of a table in a notebook

Item = TypeVar("Item")


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 80

    def repr_float(self, value: float, level: int) -> str:
        return f"{value:.4g}"


_SHORT = _Short()


class Result:
    """Base class of results, which are dataclasses with `repr=False`.

    Their `repr` rounds numbers to 4 digits and shortens long texts.
    """

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_SHORT.repr(x)}" for name, x in _fields(self).items())
        return f"{type(self).__name__}({shown})"


class ResultList(list[Item]):
    """A list of results, or of such lists, that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        results: list[Any] = self
        if results and isinstance(results[0], list):
            return "".join(ResultList(part)._repr_html_() for part in results[:_MOST_ROWS])
        names = "".join(f"<th>{name}</th>" for one in self[:1] for name in _fields(one))
        rows = ["".join(map(_cell, _fields(one).values())) for one in self[:_MOST_ROWS]]
        body = "".join(f"<tr>{row}</tr>" for row in (names, *rows))
        rest = len(self) - len(rows)
        return f"<table>{body}</table>" + (f"<p>and {rest:,} more</p>" if rest else "")


def _fields(result: Any) -> dict[str, Any]:
    return {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}


def _cell(value: Any) -> str:
    shown = value if isinstance(value, str) else "" if value is None else _SHORT.repr(value)
    return f"<td>{html.escape(shown)}</td>"
