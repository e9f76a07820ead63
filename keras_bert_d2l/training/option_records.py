"""What the records of options have in common: a YAML file or values in, checked ones out."""

import dataclasses
import math
import os
import pathlib
from collections.abc import Iterable
from typing import Any

import yaml


def check_known(options: Iterable[str], record: type[Any]) -> None:
    """Raises `ValueError` for the name of an option that a record does not have."""
    known = [field.name for field in dataclasses.fields(record)]
    for name in options:
        if name not in known:
            raise ValueError(f"Unknown option {name!r}; the options are {', '.join(known)}.")


def read_yaml(path: str | os.PathLike[str], record: type[Any]) -> dict[str, Any]:
    """Reads some or all options of a record from a YAML file; values are not checked yet.

    Args:
        path: The file.
        record: The class of the record.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is not YAML, is no mapping, or has an unknown option.
    """
    name = os.fspath(path)
    try:
        options = yaml.safe_load(pathlib.Path(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{name!r} is not a YAML file: {reason}.") from error
    if options is None:  # nothing but comments
        return {}
    if not isinstance(options, dict):
        raise ValueError(
            f"{name!r} must hold options, one `name: value` a line. Received: {options!r:.80}."
        )
    try:
        check_known(options, record)
    except ValueError as error:
        raise ValueError(f"{name!r}: {error}") from error
    return options


def out_of_range(name: str, value: Any, expected: str) -> ValueError:
    """Returns the error on an option that is not what it has to be."""
    return ValueError(f"`{name}` must be {expected}. Received: {name}={value!r:.120}.")


def number(name: str, value: Any) -> float:
    """Returns the value of an option as a float.

    Raises:
        ValueError: It is no finite number.
    """
    try:  # YAML 1.1 takes 1e-3, which has no point, for a text
        found = float(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise out_of_range(name, value, "a number")
    return float(found)


def check_integer(name: str, value: Any, smallest: int) -> None:
    """Raises `ValueError` for the value of an option that is no whole number, or too small."""
    if isinstance(value, bool) or not isinstance(value, int) or value < smallest:
        raise out_of_range(name, value, f"a whole number, at least {smallest}")


def absolute_path(name: str, value: Any) -> str:
    """Returns the value of an option as a path that is the same from any folder.

    Raises:
        ValueError: It is no path, or an empty one.
    """
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise out_of_range(name, value, "a path")
    return os.path.abspath(os.path.expanduser(value))
