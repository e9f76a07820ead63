"""Losses and default metrics: weighted means over the global batch and over the dataset.

B batch, C classes, K scores.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import keras
from keras import ops

from keras_bert_d2l.checks import check_list, check_not_negative, check_that, shown
from keras_bert_d2l.layers.kernels import fusion
from keras_bert_d2l.types import ConfigDict, Shape, Tensor

# The arguments of `compile`, and what `evaluate` returns.
Optimizer: TypeAlias = str | keras.optimizers.Optimizer
Loss: TypeAlias = str | keras.losses.Loss | Mapping[str, str | keras.losses.Loss]
Metrics: TypeAlias = Sequence[str | keras.metrics.Metric] | Mapping[str, Sequence[object]]
Results: TypeAlias = Any  # a number, a list, or a dictionary with `return_dict`


def sum_over_replicas(x: Tensor) -> Tensor:
    """Sum a tensor over the replicas of a `tf.distribute` strategy.

    Returns `x` unchanged without a strategy, and with other backends, where the global batch is
    one tensor.
    """
    if keras.backend.backend() != "tensorflow":
        return x
    import tensorflow as tf

    replica = tf.distribute.get_replica_context()
    # The cross-replica context, in which Keras builds a model symbolically, has no replica.
    if replica is None or replica.num_replicas_in_sync == 1:
        return x
    return replica.all_reduce(tf.distribute.ReduceOp.SUM, x)


@keras.saving.register_keras_serializable("keras_bert_d2l")
def cross_entropy(y_true: Tensor, y_pred: Tensor) -> Tensor:
    """Return the cross entropy of each prediction, computed in float32.

    Args:
        y_true: Labels, int `(...)` or `(..., 1)`. Negative labels are treated as class 0; the
            caller must give them the weight 0.
        y_pred: Logits in any float dtype, `(..., C)`.

    Returns: float32 `(...)`. NaN for labels of C and above, unless TensorFlow raises an error.
    """
    labels = labels_of(ops.cast(y_true, "int32"), y_pred.shape[:-1])
    losses = fusion.cross_entropy(ops.maximum(labels, 0), y_pred)
    return ops.where(labels < ops.shape(y_pred)[-1], losses, float("nan"))


@keras.saving.register_keras_serializable("keras_bert_d2l")
def binary_cross_entropy(y_true: Tensor, y_pred: Tensor) -> Tensor:
    """Return the binary cross entropy of each label, computed in float32.

    Args:
        y_true: 1 (yes) or 0 (no), `(..., C)`, or `(...)` if C is 1. Negative labels are treated as
            0; the caller must give them the weight 0.
        y_pred: Logits in any float dtype, `(..., C)`.

    Returns: float32 `(..., C)`.
    """
    logits = ops.cast(y_pred, "float32")
    labels = labels_of(ops.cast(y_true, "float32"), logits.shape)
    return ops.softplus(logits) - ops.maximum(labels, 0.0) * logits


def labels_of(y_true: Tensor, shape: Shape) -> Tensor:
    """Reshape labels to the shape of the predictions by adding or removing a last axis of size 1.

    Args:
        y_true: Labels.
        shape: Static shape of the predictions.

    Raises:
        ValueError: The shapes of the labels and the predictions do not match.
    """
    labels = ops.convert_to_tensor(y_true)
    more = len(labels.shape) - len(shape)
    if more == 1 and labels.shape[-1] == 1:
        labels = ops.squeeze(labels, axis=-1)
    elif more == -1 and shape[-1] == 1:
        labels = ops.expand_dims(labels, axis=-1)
    received, wanted = tuple(labels.shape), tuple(shape)
    if len(received) != len(wanted) or any(
        None not in pair and len(set(pair)) > 1 for pair in zip(received, wanted, strict=True)
    ):
        raise ValueError(
            f"The labels must have the shape {wanted}, with classes given as ids. Received: labels "
            f"of shape {tuple(y_true.shape)}. For one-hot labels, compile with "
            "loss='categorical_crossentropy'."
        )
    return labels


def label_weights(y_true: Tensor, sample_weight: Tensor | None = None) -> Tensor:
    """Return the weight of each label: `sample_weight`, or 0 for negative labels.

    Args:
        y_true: Labels, `(...)`.
        sample_weight: `(...)`, or `(B,)` or `(B, 1)` for one weight per row. `None`: ones.

    Returns: float32 `(...)`.

    Raises:
        ValueError: The shape of the weights does not match the labels.
    """
    weights = ops.cast(ops.cast(y_true, "float32") >= 0, "float32")
    if sample_weight is None:
        return weights
    sample_weight = ops.cast(sample_weight, "float32")
    if len(sample_weight.shape) > len(weights.shape) and sample_weight.shape[-1] == 1:
        sample_weight = ops.squeeze(sample_weight, axis=-1)
    of_labels, of_weights = tuple(weights.shape), tuple(sample_weight.shape)
    missing = len(of_labels) - len(of_weights)
    pairs = zip(of_weights, of_labels, strict=False)
    if missing < 0 or not all(None in pair or pair[0] in (1, pair[1]) for pair in pairs):
        raise ValueError(
            "`sample_weight` must have the shape of the labels, one weight per prediction, or the "
            f"shape (B,), one weight per row. Received: sample_weight.shape={of_weights}, labels' "
            f"shape={of_labels}."
        )
    return weights * ops.reshape(sample_weight, (*ops.shape(sample_weight), *[1] * missing))


def weighted_mean(losses: Tensor, weights: Tensor, total: Tensor | None = None) -> Tensor:
    """Return the weighted mean over the global batch, or 0 if all weights are 0.

    Args:
        losses: `(...)`.
        weights: `(...)`.
        total: Sum of the weights of the global batch, if this is only a part of it.
    """
    # Each replica returns its share of the global mean; Keras sums gradients and logs.
    if total is None:
        total = sum_over_replicas(ops.sum(weights))
    return ops.divide_no_nan(ops.sum(losses * weights), total)


class GlobalMeanLoss(keras.losses.Loss):
    """Base class of losses that are weighted means over the *global* batch."""

    def __call__(
        self,
        y_true: Tensor,
        y_pred: Tensor,
        sample_weight: Tensor | None = None,
        total: Tensor | None = None,
    ) -> Tensor:
        losses = self.call(y_true, y_pred)
        weights = self.weights(self.labels(y_true, losses), sample_weight)
        return weighted_mean(losses, weights, total)

    def labels(self, y_true: Tensor, losses: Tensor) -> Tensor:
        """Return the labels in the shape of the losses."""
        return labels_of(y_true, losses.shape)

    def weights(self, y_true: Tensor, sample_weight: Tensor | None) -> Tensor:
        """Return the weight of each label."""
        return label_weights(y_true, sample_weight)


@keras.saving.register_keras_serializable("keras_bert_d2l")
class WeightedCrossEntropy(GlobalMeanLoss):
    """Cross entropy from logits, averaged over the weights of the *global* batch.

    The loss is `sum(w * l) / sum(w)`, so a padded prediction (weight 0) counts neither in the
    numerator nor in the denominator, as in google-research/bert, `get_masked_lm_output`. Keras's
    own reductions divide by the number of slots, or by each replica's own sum of weights, which
    gives too much influence to replicas with few predictions. The loss is 0 if all weights are 0.

    A negative label (Hugging Face uses -100) has the weight 0, regardless of its `sample_weight`.

    Args:
        name: Name of the loss.
        class_weights: One weight per class, multiplied with the weight of every label of that
            class, as in PyTorch's `CrossEntropyLoss`. `None`: ones.

    Call arguments:
        y_true: Labels, int `(...)` or `(..., 1)`.
        y_pred: Logits, `(..., C)`.
        sample_weight: `(...)`, or `(B,)` for one weight per row. `None`: ones.

    Example:

    ```python
    import numpy as np
    import keras_bert_d2l as kb

    loss = kb.WeightedCrossEntropy()
    logits = np.array([[[0.0, 0.0], [3.0, -3.0]]])
    value = loss(np.array([[0, 1]]), logits, sample_weight=np.array([[1.0, 0.0]]))
    assert abs(float(value) - np.log(2)) < 1e-6  # only the first prediction counts
    ```
    """

    def __init__(
        self, name: str = "weighted_cross_entropy", class_weights: Sequence[float] | None = None
    ) -> None:
        super().__init__(name=name)
        if class_weights is not None:
            check_list("class_weights", class_weights, "one weight per class")
            for weight in class_weights:
                check_not_negative("class_weights", weight)
        self.class_weights = None if class_weights is None else list(class_weights)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        number = None if self.class_weights is None else len(self.class_weights)
        if number not in (None, y_pred.shape[-1]):
            raise ValueError(
                f"`class_weights` must have one weight for each of the {y_pred.shape[-1]} classes. "
                f"Received: {shown(self.class_weights)}."
            )
        return cross_entropy(y_true, y_pred)

    def weights(self, y_true: Tensor, sample_weight: Tensor | None) -> Tensor:
        weights = label_weights(y_true, sample_weight)
        if self.class_weights is None:
            return weights
        of_classes = ops.convert_to_tensor(self.class_weights, "float32")
        return weights * self.class_weights_of(y_true, of_classes)

    def class_weights_of(self, labels: Tensor, of_classes: Tensor) -> Tensor:
        """Return the weight of each label's class, given the weights of all classes."""
        return ops.take(of_classes, ops.maximum(ops.cast(labels, "int32"), 0))

    def get_config(self) -> ConfigDict:
        return {"name": self.name, "class_weights": self.class_weights}


@keras.saving.register_keras_serializable("keras_bert_d2l")
class WeightedBinaryCrossEntropy(WeightedCrossEntropy):
    """Binary cross entropy of independent labels, averaged as in `WeightedCrossEntropy`.

    Without weights, it equals PyTorch's `BCEWithLogitsLoss`. A label of -100 is unknown and has
    the weight 0.

    Args:
        name: Name of the loss.
        class_weights: One weight per class, that is, per column of the labels. `None`: ones.

    Call arguments:
        y_true: 1 (yes) or 0 (no), `(B, C)`, or `(B,)` if C is 1.
        y_pred: Logits, `(B, C)`.
        sample_weight: `(B,)` or `(B, C)`. `None`: ones.
    """

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return binary_cross_entropy(y_true, y_pred)

    def class_weights_of(self, labels: Tensor, of_classes: Tensor) -> Tensor:
        return of_classes  # the labels have one column per class


@keras.saving.register_keras_serializable("keras_bert_d2l")
class WeightedSquaredError(GlobalMeanLoss):
    """Squared error, averaged over the weights of the global batch.

    Without weights, it equals PyTorch's `MSELoss`.

    Args:
        name: Name of the loss.

    Call arguments:
        y_true: Scores, `(B, K)`, or `(B,)` if K is 1.
        y_pred: Predicted scores, `(B, K)`.
        sample_weight: `(B,)`. `None`: ones.
    """

    def __init__(self, name: str = "weighted_squared_error") -> None:
        super().__init__(name=name)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        y_pred = ops.cast(y_pred, "float32")
        return ops.square(labels_of(ops.cast(y_true, "float32"), y_pred.shape) - y_pred)

    def weights(self, y_true: Tensor, sample_weight: Tensor | None) -> Tensor:
        return label_weights(ops.zeros_like(y_true), sample_weight)  # scores may be negative

    def get_config(self) -> ConfigDict:
        return {"name": self.name}


@keras.saving.register_keras_serializable("keras_bert_d2l")
class CRFLoss(GlobalMeanLoss):
    """Negative log-likelihood of the tags of each row, as a mean over all words of the batch.

    As with cross entropy, the scale does not depend on the number of words in a row.

    Args:
        crf: The layer. `None` in a saved model, which replaces the loss when it is compiled.
        name: Name of the loss.

    Call arguments:
        y_true: Labels, int `(B, T)`; -100 where no word begins.
        y_pred: Logits, `(B, T, L)`.
        sample_weight: One weight per row, `(B,)`. `None`: ones.

    Raises:
        ValueError: `sample_weight` has one weight per token.
    """

    def __init__(self, crf: Any = None, name: str = "crf_loss") -> None:
        super().__init__(name=name)
        self.crf = crf

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return the mean loss of the words of a row, for each of its words, `(B, T)`."""
        labels = labels_of(ops.cast(y_true, "int32"), y_pred.shape[:-1])
        is_word = ops.cast(labels >= 0, "float32")
        num_words = ops.maximum(ops.sum(is_word, axis=1), 1.0)
        losses = -ops.cast(self.crf.log_likelihood(y_pred, labels), "float32") / num_words
        return losses[:, None] * is_word

    def weights(self, y_true: Tensor, sample_weight: Tensor | None) -> Tensor:
        shape = tuple(getattr(sample_weight, "shape", ()))[1:]
        expected = "one weight per text, (B,), because a CRF scores the tags of a text together"
        check_that(shape in ((), (1,)), "sample_weight", expected, sample_weight)
        return label_weights(y_true, sample_weight)

    def get_config(self) -> ConfigDict:
        return {"name": self.name}


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


def binary_metrics(prefix: str = "") -> list[keras.metrics.Metric]:
    """Return new metrics for labels of 0 and 1, as `label_metrics` does for classes."""
    return [
        LabelMean(binary_cross_entropy, f"{prefix}cross_entropy", "float32"),
        LabelMean(binary_accuracy, f"{prefix}accuracy", "float32"),
    ]


def score_metrics() -> list[keras.metrics.Metric]:
    """Return new metrics for regression."""
    return [
        keras.metrics.MeanSquaredError("squared_error", dtype="float32"),
        keras.metrics.MeanAbsoluteError("absolute_error", dtype="float32"),
    ]


@keras.saving.register_keras_serializable("keras_bert_d2l")
def accuracy(y_true: Tensor, y_pred: Tensor) -> Tensor:
    """Return 1 where the largest of C logits is that of the label, else 0, float32 `(...)`."""
    labels = labels_of(ops.cast(y_true, "int32"), y_pred.shape[:-1])
    # Negative labels have the weight 0. The maximum makes the arguments those of the loss.
    return fusion.hits(ops.maximum(labels, 0), y_pred)


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


@keras.saving.register_keras_serializable("keras_bert_d2l")
class LogitAUC(keras.metrics.AUC):
    """Area under the ROC curve of logits, over all labels of 0 and 1 with their weights."""

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        weights = label_weights(y_true, sample_weight)
        columns = (y_true, ops.sigmoid(ops.cast(y_pred, "float32")), weights)
        super().update_state(*(ops.reshape(x, (-1,)) for x in columns))
