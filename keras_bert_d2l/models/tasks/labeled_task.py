"""Base class of tasks with named labels, and conversion of label names to ids.

B batch, T tokens, C labels.
"""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import keras
import numpy as np

from keras_bert_d2l.checks import (
    check_labels,
    check_range,
    is_integer,
    is_number,
    shown,
    shown_names,
    wrong,
)
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.compiling import ONE_HOT_LOSSES, Labels, Training
from keras_bert_d2l.models.losses import WeightedCrossEntropy, label_metrics
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.types import Option, Tensor


class LabeledTask(TaskModel):
    """Base class of tasks with one output per label.

    Args:
        bert: The pretrained model.
        labels: Label names, in the order of their ids.
        dropout: Dropout rate before the head. `None`: the `dropout` of `bert`.
        **options: The other arguments of `TaskModel`. A `TokenClassifier` rejects `pooling`.

    Raises:
        ValueError: The task cannot use `bert`, or there are fewer than `min_labels` labels.

    Example:

    ```python
    import keras
    import keras_bert_d2l as kb

    @keras.saving.register_keras_serializable("my_tasks")
    class SentenceOrderer(kb.LabeledTask):
        task, pools, fields = "order", True, ("labels", "dropout", "pooling")

    bert = kb.BERTModel(8, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    model = SentenceOrderer(bert, ["right", "swapped"])
    ```
    """

    fields: tuple[str, ...] = ("labels", "dropout")
    calibrated: ClassVar[Mapping[str, object]] = {"temperature": 1.0}
    min_labels = 2
    labels_are: Labels = "classes"
    dataset_labels = (
        "ids, as from keras.layers.StringLookup(vocabulary=model.labels, num_oov_indices=0)"
    )

    def __init__(
        self,
        bert: BERTModel,
        labels: Sequence[str],
        *,
        dropout: float | None = None,
        **options: Option,
    ) -> None:
        self.labels = check_labels(labels, self.min_labels)
        super().__init__(bert, head=len(self.labels), dropout=dropout, **options)

    def default_training(self, class_weights: Sequence[float] | None) -> Training:
        return Training(WeightedCrossEntropy(class_weights=class_weights), label_metrics())

    def answer(self, logits: Tensor) -> dict[str, Tensor]:
        """Return what the logits `(..., C)` say.

        Returns: the probabilities `scores`, float32 `(..., C)`; and of the most likely label its
            `id`, int32 `(...)`, and its `score`, float32 `(...)`.
        """
        scores = keras.ops.softmax(self.tempered(logits))
        best = keras.ops.cast(keras.ops.argmax(logits, axis=-1), "int32")
        score = keras.ops.max(scores, axis=-1, initial=0.0)  # without it, there must be a text
        return {"scores": scores, "score": score, "id": best}

    def label_ids(self, y: object) -> Tensor:
        y = label_ids(y, self.labels)
        if not isinstance(y, np.ndarray):
            return y
        convert = rows_of_ids if isinstance(self.loss, ONE_HOT_LOSSES) else ids_of_rows
        return convert(y, len(self.labels))

    def num_classes(self, length: Tensor) -> dict[str, Tensor]:
        return {"": len(self.labels)}

    def weights_of_classes(self, by_label: Mapping[str | int, float]) -> list[float]:
        weights = dict.fromkeys(self.labels, 1.0)
        for label, weight in by_label.items() if isinstance(by_label, Mapping) else [(None, None)]:
            is_id = is_integer(label) and 0 <= label < len(self.labels)
            name = self.labels[int(label)] if is_id else label
            if name not in weights or not is_number(weight) or not 0 <= weight < math.inf:
                raise ValueError(
                    f"`class_weights` must map labels from {shown_names(self.labels)}, or their "
                    f"ids, to finite, non-negative numbers. Received: {shown(by_label)}."
                )
            weights[name] = float(weight)
        return [*weights.values()]


def label_ids(y: object, labels: Sequence[str]) -> Tensor:
    """Convert label names to ids.

    Args:
        y: Label names `(B,)`. Other arrays become NumPy arrays, and tensors are returned unchanged.
        labels: Names of all labels.

    Raises:
        ValueError: A label is unknown.
    """
    if not isinstance(y, list | tuple | np.ndarray):
        return y
    y = np.asarray(y)
    if y.dtype.kind in "USO":
        ids = {name: number for number, name in enumerate(labels)}
        y = np.array([_id_of(name, ids) for name in y.tolist()], "int32")
    return y


def rows_of_ids(ids: np.ndarray, num_labels: int) -> np.ndarray:
    """Return the one-hot rows `(B, C)` of ids `(B,)`, and rows unchanged."""
    if ids.ndim > 1:
        return ids
    check_range("labels", ids, 0, num_labels - 1)
    return np.eye(num_labels, dtype="float32")[ids.astype("int32")]


def ids_of_rows(y: np.ndarray, num_labels: int | None = None) -> np.ndarray:
    """Return the ids of one-hot rows `(B, C)`, and other labels unchanged."""
    is_hot = y.ndim == 2 and y.shape[1] > 1 and np.isin(y, (0, 1)).all() and (y.sum(1) == 1).all()
    if is_hot and num_labels not in (None, y.shape[1]):
        raise wrong("y", f"rows with one column for each of {num_labels} labels", y.shape)
    return y.argmax(1) if is_hot else y


def multi_hot(y: object, labels: Sequence[str]) -> Tensor:
    """Convert lists of labels to multi-hot vectors, `(B, C)`.

    Args:
        y: One list of label names per text, or the multi-hot vectors themselves. Tensors are
            returned unchanged.
        labels: Names of all labels.

    Raises:
        ValueError: A label is unknown, or `y` contains neither names nor multi-hot vectors.
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


def word_label_ids(y: object, labels: Sequence[str]) -> Tensor:
    """Convert the labels of words to ids, ragged `(B, None)`.

    Args:
        y: One list of label names or ids per text. Arrays and tensors, which contain the labels of
            tokens, are returned unchanged.
        labels: Names of all labels.

    Raises:
        ValueError: A label is unknown, or a text has no list of labels.
    """
    if not isinstance(y, list | tuple):
        return label_ids(y, labels)
    import tensorflow as tf

    for index, row in enumerate(y):
        if not isinstance(row, list | tuple | np.ndarray):
            raise ValueError(
                "The labels of words must be a list of labels for each text. Received: "
                f"{shown(row)} for text {index}."
            )
    rows = [label_ids(list(row), labels).tolist() for row in y]
    for index, row in enumerate(rows):
        if not all(map(is_integer, row)):
            raise ValueError(
                "The labels of words must be names or ids, without empty places. Received: "
                f"{shown(row)} for text {index}."
            )
    return tf.ragged.constant(rows, tf.int32, ragged_rank=1)


def _checked_hot(y: object, num_labels: int) -> np.ndarray:
    try:
        hot = np.asarray(y)
        # With a single label, the second axis is optional.
        is_hot = hot.shape[1:] == (num_labels,) or (hot.ndim == num_labels == 1)
    except ValueError:  # rows of different lengths
        is_hot = False
    if not is_hot or hot.dtype.kind not in "biuf":
        raise ValueError(
            "Multi-label targets must be a list of label names for each text, or a row of 0 and 1 "
            f"for each text with one column for each of the {num_labels} labels. "
            f"Received: {shown(y)}."
        )
    return hot


def _are_names(y: Sequence[object]) -> bool:
    return all(
        isinstance(row, list | tuple) and all(isinstance(name, str) for name in row) for row in y
    )


def _id_of(name: object, ids: dict[str, int]) -> int:
    if not isinstance(name, str) or name not in ids:
        raise ValueError(
            f"The model's labels are {shown_names(ids)}. Received: the label {shown(name)}."
        )
    return ids[name]
