"""Argument checks shared by several subpackages."""

import math
import os
import reprlib
from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 80


def shown(value: object) -> str:
    """Return the `repr` of a value for a message. Long strings and lists are shortened."""
    return _REPR.repr(value)


def check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Raise a `ValueError` unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(
            f"`{name}` must be one of {', '.join(map(repr, choices))}. "
            f"Received: {name}={shown(value)}."
        )


def check_path(name: str, value: object) -> None:
    """Raise a `ValueError` unless `value` is a path."""
    if not isinstance(value, str | os.PathLike):
        raise ValueError(f"`{name}` must be a path. Received: {name}={shown(value)}.")


def check_type(name: str, value: object, kind: type, advice: str = "") -> None:
    """Raise a `ValueError` that ends with `advice` unless `value` is an instance of `kind`."""
    if not isinstance(value, kind):
        raise ValueError(
            f"`{name}` must be a `{kind.__name__}`. Received: {shown(value)} "
            f"({type(value).__name__}). {advice}".rstrip()
        )


def check_list(name: str, value: object, items: str) -> None:
    """Raise a `ValueError` unless `value` is a list or a tuple. `items` says what it contains."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"`{name}` must be a list of {items}. Received: {shown(value)}.")


def check_share(name: str, value: object, *, ends: bool = False) -> None:
    """Raise a `ValueError` unless `value` is a number between 0 and 1 (with `ends`, or equal)."""
    if not is_number(value) or not (0 <= value <= 1 if ends else 0 < value < 1):
        raise ValueError(
            f"`{name}` must be a number between 0 and 1. Received: {name}={shown(value)}."
        )


def check_bool(name: str, value: object) -> bool:
    """Return `value` as a plain boolean, or raise a `ValueError` if it is not a boolean."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"`{name}` must be True or False. Received: {name}={shown(value)}.")
    return bool(value)


def check_positive(name: str, value: object) -> None:
    """Raise a `ValueError` unless `value` is a number above 0, and neither infinite nor NaN."""
    if not is_number(value) or not 0 < value < math.inf:
        raise ValueError(
            f"`{name}` must be a positive, finite number. Received: {name}={shown(value)}."
        )


def check_not_negative(name: str, value: object, below: float = math.inf) -> None:
    """Raise a `ValueError` unless `value` is a finite number of at least 0, and below `below`."""
    if not is_number(value) or not 0 <= value < below:
        limit = "" if below == math.inf else f" and below {below}"
        raise ValueError(
            f"`{name}` must be a finite number of at least 0{limit}. "
            f"Received: {name}={shown(value)}."
        )


def check_integer(name: str, value: object, least: int, reason: str = "") -> None:
    """Raise a `ValueError` unless `value` is an integer of at least `least`.

    NumPy integers count as integers; booleans do not.

    Args:
        name: Name of the argument, for the message.
        value: What the caller passed.
        least: Smallest accepted value.
        reason: Explains `least` in the message. It follows the number directly.
    """
    if not is_integer(value) or value < least:
        raise ValueError(
            f"`{name}` must be an integer of at least {least}{reason}. "
            f"Received: {name}={shown(value)}."
        )


def is_integer(value: object) -> TypeGuard[int]:
    """Return whether a value is a Python or NumPy integer. Booleans are not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a Python or NumPy number. Booleans are not."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def has_surrogate(value: object) -> bool:
    """Return whether a string, or one in a list, has half of a surrogate pair.

    JSON may have one, but UTF-8 cannot encode it. It remains of an emoji that a program truncated.
    """
    if isinstance(value, tuple | list):
        return any(map(has_surrogate, value))
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return True
    return False
