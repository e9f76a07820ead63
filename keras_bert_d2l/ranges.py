"""Range checks of ids, lengths, positions and labels, in memory and in `tf.data` pipelines."""

import contextlib
import re
import sys
from collections.abc import Iterator

import numpy as np

from keras_bert_d2l.types import Tensor

IGNORED = -100  # label of tokens and rows that losses and metrics ignore


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
