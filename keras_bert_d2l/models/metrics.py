"""The metrics that `compile` takes by default, exact over a whole data set."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_bert_d2l.models.losses import (
    binary_cross_entropy,
    cross_entropy,
    label_weights,
    labels_of,
)


def weighted_metrics(prefix: str = "") -> list[keras.metrics.Metric]:
    """Returns new cross-entropy and accuracy metrics for one head.

    Passed as `weighted_metrics`, they are sums over all weights seen, so that the size of a batch
    does not matter. Under the outputs' names the log reads `mlm_cross_entropy`, `nsp_accuracy`.

    Args:
        prefix: Put before both names.
    """
    return [
        # Keras's own cross-entropy metric would take the softmax in the dtype of the logits.
        keras.metrics.MeanMetricWrapper(
            cross_entropy, name=f"{prefix}cross_entropy", dtype="float32"
        ),
        keras.metrics.SparseCategoricalAccuracy(name=f"{prefix}accuracy", dtype="float32"),
    ]


def label_metrics() -> list[keras.metrics.Metric]:
    """Returns new metrics of one label out of several, for labels of which some may be below 0."""
    return [LabelMean(cross_entropy, "cross_entropy"), LabelMean(accuracy, "accuracy")]


def binary_metrics() -> list[keras.metrics.Metric]:
    """Returns new metrics of independent yes-or-no labels."""
    return [
        LabelMean(binary_cross_entropy, "cross_entropy"),
        LabelMean(binary_accuracy, "accuracy"),
    ]


def score_metrics() -> list[keras.metrics.Metric]:
    """Returns new metrics of scores."""
    return [
        keras.metrics.MeanSquaredError("squared_error", dtype="float32"),
        keras.metrics.MeanAbsoluteError("absolute_error", dtype="float32"),
    ]


@keras.saving.register_keras_serializable("keras_bert_d2l")
def accuracy(y_true: Any, y_pred: Any) -> Any:
    """Whether the largest logit of `(..., C)` is the label's, float32 `(...)`."""
    predicted = ops.cast(ops.argmax(y_pred, axis=-1), "int32")
    labels = labels_of(ops.cast(y_true, "int32"), predicted.shape)
    return ops.cast(labels == predicted, "float32")


@keras.saving.register_keras_serializable("keras_bert_d2l")
def binary_accuracy(y_true: Any, y_pred: Any) -> Any:
    """Whether a logit is positive where the label is 1, and only there, float32 `(...)`."""
    labels = labels_of(ops.cast(y_true, "float32"), y_pred.shape)
    return ops.cast((labels > 0.5) == (y_pred > 0), "float32")


@keras.saving.register_keras_serializable("keras_bert_d2l")
class LabelMean(keras.metrics.Mean):
    """Mean of a function of labels and logits, over the labels that are not below 0.

    Every label counts the same: Keras's own mean would give each row of a batch the same say,
    however many labels it has.

    Args:
        fn: A registered function of `y_true` and `y_pred`, with a value for each label.
        name: Name of the metric.
    """

    def __init__(self, fn: Callable[[Any, Any], Any], name: str, **kwargs: Any) -> None:
        super().__init__(name=name, **{"dtype": "float32", **kwargs})
        self.fn = fn

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        values = self.fn(y_true, y_pred)
        weights = label_weights(labels_of(y_true, values.shape), sample_weight)
        super().update_state(ops.reshape(values, (-1,)), ops.reshape(weights, (-1,)))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "fn": keras.saving.serialize_keras_object(self.fn)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "LabelMean":
        return cls(**{**config, "fn": keras.saving.deserialize_keras_object(config["fn"])})
