"""Default metrics of `compile`, computed exactly over the complete dataset."""

import keras
from keras import ops

from keras_bert_d2l.layers.kernels.cross_entropy import hits
from keras_bert_d2l.models.losses import (
    Metrics,
    binary_cross_entropy,
    cross_entropy,
    label_weights,
    labels_of,
)
from keras_bert_d2l.types import Option, Tensor


def label_metrics(prefix: str = "") -> list[keras.metrics.Metric]:
    """Return new cross-entropy and accuracy metrics for an output with one label per prediction.

    Pass them to `compile` as `weighted_metrics`. They sum over all weights, so the batch size does
    not matter, and ignore negative labels. Keras adds the output's name, as in
    `mlm_cross_entropy` and `nsp_accuracy`.

    Args:
        prefix: Prefix of both metric names.
    """
    return [
        LabelMean(cross_entropy, f"{prefix}cross_entropy", "float32"),
        LabelMean(accuracy, f"{prefix}accuracy", "float32"),
    ]


def binary_metrics() -> list[keras.metrics.Metric]:
    """Return new metrics for multi-label classification."""
    return [
        LabelMean(binary_cross_entropy, "cross_entropy", "float32"),
        LabelMean(binary_accuracy, "accuracy", "float32"),
    ]


def score_metrics() -> list[keras.metrics.Metric]:
    """Return new metrics for regression."""
    return [
        keras.metrics.MeanSquaredError("squared_error", dtype="float32"),
        keras.metrics.MeanAbsoluteError("absolute_error", dtype="float32"),
    ]


def with_default_metrics(options: dict[str, Option], metrics: Metrics | None) -> dict[str, Option]:
    """Add default metrics to the arguments of `compile`, unless metrics are given."""
    if options.get("metrics") is None and options.get("weighted_metrics") is None:
        return {**options, "weighted_metrics": metrics}
    return options


@keras.saving.register_keras_serializable("keras_bert_d2l")
def accuracy(y_true: Tensor, y_pred: Tensor) -> Tensor:
    """Return 1 where the largest of C logits is that of the label, else 0, float32 `(...)`."""
    labels = labels_of(ops.cast(y_true, "int32"), y_pred.shape[:-1])
    # Negative labels have the weight 0. The maximum makes the arguments those of the loss.
    return hits(ops.maximum(labels, 0), y_pred)


@keras.saving.register_keras_serializable("keras_bert_d2l")
def binary_accuracy(y_true: Tensor, y_pred: Tensor) -> Tensor:
    """Return 1 where the sign of a logit matches its label, else 0, float32 `(...)`."""
    labels = labels_of(ops.cast(y_true, "float32"), y_pred.shape)
    return ops.cast((labels > 0.5) == (y_pred > 0), "float32")


@keras.saving.register_keras_serializable("keras_bert_d2l")
class LabelMean(keras.metrics.MeanMetricWrapper):
    """Mean of a per-label function of labels and logits, ignoring negative labels.

    Every label counts equally. Keras's own mean would give every row the same weight, regardless
    of how many labels it has.

    Args:
        fn: A registered function of `y_true` and `y_pred` that returns one value per label.
        name: Name of the metric.
        dtype: Dtype of the mean.
    """

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        values = self._fn(y_true, y_pred)
        weights = label_weights(labels_of(y_true, values.shape), sample_weight)
        keras.metrics.Mean.update_state(
            self, ops.reshape(values, (-1,)), ops.reshape(weights, (-1,))
        )
