"""The checks of arguments, also of ids, lengths and labels in `tf.data` pipelines."""

import contextlib
import difflib
import functools
import itertools
import math
import os
import re
import reprlib
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias, TypeGuard, TypeVar

from keras_bert_d2l.types import Tensor

Check: TypeAlias = Callable[[str, Any], Any]
"""Function that takes the name and the value of an argument and returns the normalized value."""

_Value = TypeVar("_Value")

IGNORED = -100  # label of tokens and rows that losses and metrics ignore

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 80
_MOST = 100  # characters


def shown(value: object) -> str:
    """Return the `repr` of a value for a message, in at most 100 characters."""
    try:
        text = _REPR.repr(value)
    except ValueError:  # an integer of more than 4,300 digits
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."


def shown_names(names: Iterable[object]) -> str:
    """Return the `repr` of names for a message, in at most 200 characters."""
    # No more names fit, because each takes at least three characters.
    text = ", ".join(map(shown, itertools.islice(names, _MOST)))
    return text if len(text) <= 2 * _MOST else f"{text[: 2 * _MOST - 3]}..."


def wrong(name: str, expected: str, value: object, advice: str = "") -> ValueError:
    """Return the error for an argument that must be something else."""
    message = f"`{name}` must be {expected}. Received: {name}={shown(value)}. {advice}"
    return ValueError(message.rstrip())


def check_that(is_right: bool, name: str, expected: str, value: object, advice: str = "") -> None:
    """Raise the error of `wrong` unless `is_right`."""
    if not is_right:
        raise wrong(name, expected, value, advice)


def check_choice(name: str, value: _Value, choices: Sequence[object]) -> _Value:
    """Return `value`, or raise a `ValueError` unless it is one of `choices`."""
    expected = f"one of {', '.join(map(repr, choices))}"
    if value not in choices:  # a suggestion takes 0.1 ms, and readers check a choice per row
        check_that(False, name, expected, value, did_you_mean(value, choices))
    return value


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Return a question that suggests the known name most like another, with a space, or "".

    Only letters and digits count, in either case.
    """

    def letters(spelled: object) -> str:
        return re.sub(r"[\W_]", "", str(spelled)[:_MOST]).lower()

    names = {letters(one): one for one in known}
    close = difflib.get_close_matches(letters(name), names, 1)
    return f"Did you mean {names[close[0]]!r}? " if close else ""


def check_known(kind: str, names: Iterable[object], known: Collection[str]) -> None:
    """Raise a `ValueError` for a name that is not known, which suggests a similar one.

    Args:
        kind: What the names are for, such as `"option"`.
        names: The names that were received.
        known: The known names.
    """
    for name in names:
        if name not in known:
            message = f"Unknown {kind} {shown(name)}. {did_you_mean(name, known)}"
            raise ValueError(f"{message}Known: {', '.join(dict.fromkeys(known))}.")


def check_path(name: str, value: object) -> None:
    """Raise a `ValueError` unless `value` is a path."""
    check_that(isinstance(value, str | os.PathLike), name, "a path", value)


def check_type(name: str, value: _Value, kind: type, advice: str = "") -> _Value:
    """Return `value`, or raise a `ValueError` that ends with `advice` if it is no `kind`."""
    if not isinstance(value, kind):
        raise ValueError(
            f"`{name}` must be a `{kind.__name__}`. Received: {shown(value)} "
            f"({type(value).__name__}). {advice}".rstrip()
        )
    return value


def check_list(name: str, value: object, items: str) -> None:
    """Raise a `ValueError` unless `value` is a list or a tuple. `items` says what it contains."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"`{name}` must be a list of {items}. Received: {shown(value)}.")


def check_labels(labels: Sequence[str], at_least: int) -> tuple[str, ...]:
    """Return the label names as a tuple; raise `ValueError` if they are invalid."""
    # A set has no fixed order, so the ids of its names would differ between processes.
    is_list = isinstance(labels, list | tuple) or is_of_numpy(labels, "ndarray")
    names = tuple(labels) if is_list else ()
    is_name = all(isinstance(name, str) and name for name in names)
    is_right = is_name and len(set(names)) == len(names) >= at_least
    check_that(is_right, "labels", f"a list of at least {at_least} different names", labels)
    return names


def check_bool(name: str, value: object) -> bool:
    """Return `value` as a plain boolean, or raise a `ValueError` if it is not a boolean."""
    check_that(isinstance(value, bool) or is_of_numpy(value, "bool_"), name, "True or False", value)
    return bool(value)


def check_share(name: str, value: _Value, *, ends: bool = False) -> _Value:
    """Return a number between 0 and 1 (with `ends`, or equal); raise a `ValueError` for others."""
    is_right = is_number(value) and (0 <= value <= 1 if ends else 0 < value < 1)
    check_that(is_right, name, "a number between 0 and 1", value)
    return value


def check_positive(name: str, value: _Value, most: float = math.inf) -> _Value:
    """Return a finite number above 0 and of at most `most`; raise a `ValueError` for others."""
    is_right = is_number(value) and 0 < value <= most and value < math.inf
    limit = "" if most == math.inf else f" of at most {most}"
    check_that(is_right, name, f"a positive, finite number{limit}", value)
    return value


def check_not_negative(name: str, value: _Value, below: float = math.inf) -> _Value:
    """Return a finite number of at least 0 and below `below`; raise a `ValueError` for others."""
    limit = "" if below == math.inf else f" and below {below}"
    is_right = is_number(value) and 0 <= value < below
    check_that(is_right, name, f"a finite number of at least 0{limit}", value)
    return value


def check_integer(name: str, value: object, least: int, reason: str = "") -> int:
    """Return an integer of at least `least`; raise a `ValueError` for other values.

    NumPy integers count as integers; booleans do not.

    Args:
        name: Name of the argument, for the message.
        value: What the caller passed.
        least: Smallest accepted value.
        reason: Explains `least` in the message. It follows the number directly.
    """
    if not is_integer(value) or value < least:
        raise wrong(name, f"an integer of at least {least}{reason}", value)
    return int(value)


def checked_max_len(max_len: int | None, at_least: int, most: int) -> int:
    """Return the maximum number of tokens in a row, for `None` that of the model, `most`.

    Raises:
        ValueError: `max_len` is below `at_least` or exceeds the model's maximum.
    """
    if max_len is None:
        return most
    check_integer("max_len", max_len, 1)
    is_right = at_least <= max_len <= most
    check_that(is_right, "max_len", f"from {at_least} to {most}, the model's maximum", max_len)
    return max_len


def at_least(least: int) -> Check:
    """Return the check of an integer, for the annotation of a field."""
    return functools.partial(check_integer, least=least)


def check_annotated(name: str, value: Any, kind: Any) -> Any:
    """Return the normalized value of a field whose annotation has its checks.

    Args:
        name: Name of the field, for the message.
        value: What the caller passed.
        kind: `bool`, a `Literal`, an `Annotated` type with checks, or one of these with `None`. The
            checks run from the last one to the first.

    Raises:
        ValueError: The value is invalid.
    """
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        if value is None:
            return None
        [kind] = [one for one in typing.get_args(kind) if one is not types.NoneType]
    if kind is bool:
        return check_bool(name, value)
    if typing.get_origin(kind) is Literal:
        return check_choice(name, value, typing.get_args(kind))
    for check in reversed(kind.__metadata__):
        value = check(name, value)
    return value


def is_integer(value: object) -> TypeGuard[int]:
    """Return whether a value is a Python or NumPy integer. Booleans are not."""
    is_python = isinstance(value, int) and not isinstance(value, bool)
    return is_python or is_of_numpy(value, "integer")


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a Python or NumPy number. Booleans are not."""
    is_python = isinstance(value, int | float) and not isinstance(value, bool)
    return is_python or is_of_numpy(value, "number")


def is_of_numpy(value: object, kind: str) -> bool:
    """Return whether a value has a type of NumPy, such as "ndarray".

    No value has one before NumPy is imported, and the command line starts without it.
    """
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, getattr(numpy, kind))


def negative_of(group: Tensor) -> Tensor:
    """Return the label of a negative whose text is also in a pair of a group, for embeddings."""
    return -1000 - group


def check_range(
    name: str,
    values: Tensor,
    least: Tensor,
    most: Tensor,
    advice: str = "",
    ignored: int | None = None,
    are_whole: bool = True,
) -> None:
    """Raise a `ValueError` unless all values are from `least` to `most`, and integers.

    In a TensorFlow graph, such as a function for `Dataset.map`, it adds an assertion.
    `value_errors` converts its failure to the same `ValueError`.

    Args:
        name: Name of the argument, for the message.
        values: Integers in any dtype and of any shape.
        least: Smallest value.
        most: Largest value. A tensor `least` must be the same tensor.
        advice: How to fix it, for the message. It may contain neither braces nor quotes.
        ignored: A value that is accepted as well.
        are_whole: Whether the values must be integers.
    """
    import numpy as np

    if not is_in_graph(values):
        values = np.asarray(values)
    dtype = np.dtype(getattr(values.dtype, "as_numpy_dtype", values.dtype))
    if dtype.kind in "OSUc":
        received = "complex numbers" if dtype.kind == "c" else "strings or other objects"
        raise ValueError(f"`{name}` must be integers. Received: {received}. {advice}".rstrip())
    limits = "{}" if least is most else f"from {least} to {{}}"
    besides = "" if ignored is None else f", or {ignored}"
    message = f"`{name}` must be {limits}{besides}. Received: {{}}. {advice}".rstrip()
    if is_in_graph(values) or is_in_graph(most):
        _add_assertion(values, least, most, ignored, message, are_whole)
        return
    is_right = (
        (values >= least) & (values <= most) & ((values == np.floor(values)) | (not are_whole))
    )
    wrong = values[~(is_right | (values == ignored))]
    if wrong.size:
        raise ValueError(message.format(most, wrong[0]))


def _add_assertion(
    values: Tensor, least: Tensor, most: Tensor, ignored: int | None, message: str, are_whole: bool
) -> None:
    import tensorflow as tf

    values = tf.reshape(values, [-1])
    dtype = tf.float64 if values.dtype.is_floating else tf.int64
    values, least, limit = (tf.cast(x, dtype) for x in (values, least, most))
    is_right = (values >= least) & (values <= limit)
    if values.dtype.is_floating and are_whole:
        is_right &= values == tf.floor(values)
    if ignored is not None:
        is_right |= values == ignored

    # Branches for a message that is only formatted when needed would take longer to trace than all
    # other operations together.
    first_wrong = tf.argmin(tf.cast(tf.pad(is_right, [[0, 1]]), tf.int32))
    received = tf.gather(tf.pad(values, [[0, 1]]), first_wrong)
    shown = tf.strings.format(message, (most, received))
    tf.raw_ops.Assert(condition=tf.reduce_all(is_right), data=[shown])


def is_in_graph(x: Tensor) -> bool:
    """Return whether a tensor belongs to a TensorFlow graph, so that its values are unknown."""
    tf = sys.modules.get("tensorflow")
    return tf is not None and tf.is_symbolic_tensor(x)


@contextlib.contextmanager
def value_errors() -> Iterator[None]:
    """Convert a failed check in a TensorFlow graph to a `ValueError` with only its message.

    TensorFlow surrounds the message with dozens of lines about the graph.
    """
    try:
        yield
    except Exception as error:  # TensorFlow's type depends on where the graph runs
        found = re.search(
            r"(?:assertion failed: \[|ValueError: )(.+ Received: .+\.)\]?$", str(error), re.M
        )
        if isinstance(error, ValueError) or not found:
            raise
        raise ValueError(found[1]) from None
