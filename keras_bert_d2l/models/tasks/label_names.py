"""Names of labels in, what a loss takes out.

B batch, T tokens, C labels.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bert_d2l.models.bert import BERTModel


def check_labels(labels: Sequence[str], at_least: int) -> tuple[str, ...]:
    """Returns the names of a task's labels; raises a `ValueError` where they are none."""
    names = () if isinstance(labels, str) else tuple(labels)
    is_name = all(isinstance(name, str) and name for name in names)
    if not is_name or len(set(names)) < len(names) or len(names) < at_least:
        raise ValueError(
            f"`labels` must be at least {at_least} different names. Received: {labels!r:.120}."
        )
    return names


def check_dropout(dropout: float | None, bert: BERTModel) -> float:
    """Returns the rate before a head, which is that of `bert` if none is given."""
    rate = bert.bert_config.dropout if dropout is None else dropout
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < 1:
        raise ValueError(f"`dropout` must be in [0, 1). Received: dropout={dropout!r}.")
    return rate


def label_ids(y: Any, labels: Sequence[str]) -> Any:
    """Returns ids `(B,)` for names or ids of labels; tensors are returned as they are.

    Raises:
        ValueError: There is no such label.
    """
    if not isinstance(y, list | tuple | np.ndarray):
        return y
    y = np.asarray(y)
    if y.dtype.kind in "USO":
        ids = {name: number for number, name in enumerate(labels)}
        return np.array([_id_of(name, ids) for name in y.tolist()], "int32")
    if y.size and y.max() >= len(labels):
        raise ValueError(
            f"A label must be below {len(labels)}, the model has {len(labels)} labels. Received: "
            f"{y.max()}."
        )
    return y


def multi_hot(y: Any, labels: Sequence[str]) -> Any:
    """Returns 0 and 1 `(B, C)` for lists of names of labels; numbers of this shape as they are.

    Tensors are returned as they are.

    Raises:
        ValueError: There is no such label, or `y` holds neither names nor such numbers.
    """
    if isinstance(y, np.ndarray) and y.dtype.kind in "USO":
        y = y.tolist()
    if not isinstance(y, list | tuple) or not _are_names(y):
        return _checked_hot(y, len(labels)) if isinstance(y, list | tuple | np.ndarray) else y
    ids = {name: number for number, name in enumerate(labels)}
    hot = np.zeros((len(y), len(labels)), "int32")
    for row, names in enumerate(y):
        hot[row, [_id_of(name, ids) for name in names]] = 1
    return hot


def word_label_ids(y: Any, labels: Sequence[str]) -> Any:
    """Returns the ids of the labels of words, ragged `(B, None)`, for lists of their names or ids.

    Arrays and tensors, labels of tokens, are returned as they are.

    Raises:
        ValueError: There is no such label.
    """
    if not isinstance(y, list | tuple):
        return label_ids(y, labels)
    import tensorflow as tf

    rows = [label_ids(list(row), labels).tolist() for row in y]
    return tf.ragged.constant(rows, tf.int32, ragged_rank=1)


def _checked_hot(y: Any, num_labels: int) -> np.ndarray:
    try:
        hot = np.asarray(y)
        # Of a single label the axis may be left out.
        is_hot = hot.shape[1:] == (num_labels,) or (hot.ndim == num_labels == 1)
    except ValueError:  # rows of different lengths
        is_hot = False
    if not is_hot or hot.dtype.kind not in "biuf":
        raise ValueError(
            "The labels of texts that can have several are a list of names for each text, or 0 "
            f"and 1 for each text and each of the {num_labels} labels. Received: {y!r:.120}."
        )
    return hot


def _are_names(y: Sequence[Any]) -> bool:
    return all(
        isinstance(row, list | tuple) and all(isinstance(name, str) for name in row) for row in y
    )


def _id_of(name: Any, ids: dict[str, int]) -> int:
    if name not in ids:
        raise ValueError(f"The model has the labels {list(ids)}. Received: the label {name!r:.80}.")
    return ids[name]
