"""The checks of arguments, also of ids, lengths and labels in `tf.data` pipelines."""

import contextlib
import math
import os
import re
import reprlib
import sys
from collections.abc import Iterator, Sequence
from typing import TypeGuard

import numpy as np

from keras_bert_d2l.types import Tensor

IGNORED = -100  # label of tokens and rows that losses and metrics ignore

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
) -> None:
    """Raise a `ValueError` unless all values are integers from `least` to `most`.

    In a TensorFlow graph, such as a function for `Dataset.map`, it adds an assertion.
    `value_errors` converts its failure to the same `ValueError`.

    Args:
        name: Name of the argument, for the message.
        values: Integers in any dtype and of any shape.
        least: Smallest value.
        most: Largest value. A tensor `least` must be the same tensor.
        advice: How to fix it, for the message. It may contain neither braces nor quotes.
        ignored: A value that is accepted as well.
    """
    limits = "{}" if least is most else f"from {least} to {{}}"
    besides = "" if ignored is None else f", or {ignored}"
    message = f"`{name}` must be {limits}{besides}. Received: {{}}. {advice}".rstrip()
    if is_in_graph(values) or is_in_graph(most):
        _add_assertion(values, least, most, ignored, message)
        return
    values = np.asarray(values)
    is_right = (values >= least) & (values <= most) & (values == np.floor(values))
    wrong = values[~(is_right | (values == ignored))]
    if wrong.size:
        raise ValueError(message.format(most, wrong[0]))


def _add_assertion(
    values: Tensor, least: Tensor, most: Tensor, ignored: int | None, message: str
) -> None:
    import tensorflow as tf

    values = tf.reshape(values, [-1])
    dtype = tf.float64 if values.dtype.is_floating else tf.int64
    values, least, limit = (tf.cast(x, dtype) for x in (values, least, most))
    is_right = (values >= least) & (values <= limit)
    if values.dtype.is_floating:
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
        found = re.search(r"(?:assertion failed: \[|ValueError: )(`.+\.)\]?$", str(error), re.M)
        if isinstance(error, ValueError) or not found:
            raise
        raise ValueError(found[1]) from None
