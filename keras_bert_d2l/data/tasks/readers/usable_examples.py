"""Collect the usable examples of a file, and count the others by reason."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from keras_bert_d2l.checks import has_surrogate
from keras_bert_d2l.data.tasks.examples import TaskExamples

_Examples = TypeVar("_Examples", bound=TaskExamples)
_Row = TypeVar("_Row")


class Unusable(Exception):
    """Raised for a row that cannot be used. The message is the reason shown to the user."""


def collect(
    kind: type[_Examples],
    rows: Iterable[tuple[str, _Row]],
    example: Callable[[_Row], Mapping[str, object]],
    **fields: object,
) -> _Examples:
    """Build an example from every usable row.

    Args:
        kind: The class of the examples.
        rows: The rows, each with its location as shown to the user, such as `"line 3"`.
        example: Returns `ids` and the `sequences` of `kind` for one row, or raises `Unusable`.
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
            dropped[str(error)] += 1
            first_dropped.setdefault(str(error), place)
        else:
            kept.append(values)
    arguments: dict[str, Any] = {"dropped": dict(dropped), "first_dropped": first_dropped, **fields}
    for name in ("ids", *kind.sequences):
        column = tuple(values.get(name) for values in kept)
        has_values = not kept or any(value is not None for value in column)
        arguments[name] = column if has_values else None
    return kind(**arguments)
