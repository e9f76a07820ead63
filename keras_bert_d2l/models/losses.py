"""The losses: labels, logits and weights in, one number out; each a mean over weights.

B batch, C classes, K scores.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops


def sum_over_replicas(x: Any) -> Any:
    """Sums a tensor over the replicas of a `tf.distribute` strategy; elsewhere returns it as is.

    Other backends see the global batch in one piece, so that there is nothing to add up.
    """
    if keras.backend.backend() != "tensorflow":
        return x
    import tensorflow as tf

    replica = tf.distribute.get_replica_context()
    # None: the cross-replica context, in which Keras builds a model symbolically.
    if replica is None or replica.num_replicas_in_sync == 1:
        return x
    return replica.all_reduce(tf.distribute.ReduceOp.SUM, x)


@keras.saving.register_keras_serializable("keras_bert_d2l")
def cross_entropy(y_true: Any, y_pred: Any) -> Any:
    """Cross entropy of each prediction, in float32 whatever the dtype of the logits.

    Args:
        y_true: Labels, int `(...)` or `(..., 1)`; one below 0 means that there is none, and counts
            as class 0.
        y_pred: Logits, `(..., C)`.

    Returns: float32 `(...)`.
    """
    labels = labels_of(ops.cast(y_true, "int32"), y_pred.shape[:-1])
    return ops.sparse_categorical_crossentropy(
        ops.maximum(labels, 0), ops.cast(y_pred, "float32"), from_logits=True
    )


@keras.saving.register_keras_serializable("keras_bert_d2l")
def binary_cross_entropy(y_true: Any, y_pred: Any) -> Any:
    """Cross entropy of each yes-or-no decision, in float32 whatever the dtype of the logits.

    Args:
        y_true: 1 (yes) or 0 (no); one below 0 means that it is not known, and counts as 0.
            `(..., C)`, or `(...)` where C is 1.
        y_pred: Logits, `(..., C)`.

    Returns: float32 `(..., C)`.
    """
    logits = ops.cast(y_pred, "float32")
    labels = labels_of(ops.cast(y_true, "float32"), logits.shape)
    return ops.softplus(logits) - ops.maximum(labels, 0.0) * logits


def labels_of(y_true: Any, shape: Sequence[int | None]) -> Any:
    """Returns labels in the shape of what they are for, of which an axis of one may be left out.

    Args:
        y_true: Labels, `(...)` or `(..., 1)`.
        shape: The shape, as far as it is known.

    Raises:
        ValueError: The labels have another shape.
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
            f"The labels must have the shape {wanted}, of classes each its number. Received: "
            f"labels of shape {tuple(y_true.shape)}."
        )
    return labels


def label_weights(y_true: Any, sample_weight: Any = None) -> Any:
    """Returns the weights of labels, of which those below 0 have none.

    Args:
        y_true: Labels, `(...)`.
        sample_weight: `(...)`, or `(B,)` or `(B, 1)` for those of whole rows; `None` for ones.

    Returns: float32 `(...)`.

    Raises:
        ValueError: The weights are not those of these labels.
    """
    weights = ops.cast(ops.cast(y_true, "float32") >= 0, "float32")
    if sample_weight is None:
        return weights
    sample_weight = ops.cast(sample_weight, "float32")
    if len(sample_weight.shape) > len(weights.shape) and sample_weight.shape[-1] == 1:
        sample_weight = ops.squeeze(sample_weight, axis=-1)
    _check_shapes(weights, sample_weight)
    missing = len(weights.shape) - len(sample_weight.shape)
    return weights * ops.reshape(sample_weight, (*ops.shape(sample_weight), *[1] * missing))


def weighted_mean(losses: Any, weights: Any) -> Any:
    """Returns the mean over the weights of the global batch, or 0 where there are none."""
    # Each replica returns its share of the global mean; gradients and logs are summed.
    return ops.divide_no_nan(ops.sum(losses * weights), sum_over_replicas(ops.sum(weights)))


def _check_shapes(labels: Any, sample_weight: Any) -> None:
    of_labels, of_weights = tuple(labels.shape), tuple(sample_weight.shape)
    fits = all(
        None in pair or pair[0] in (1, pair[1]) for pair in zip(of_weights, of_labels, strict=False)
    )
    if not fits or len(of_weights) > len(of_labels):
        raise ValueError(
            "The weights must have the shape of the labels, one for each prediction, or be one for "
            f"each row. Received: sample_weight.shape={of_weights}, labels' shape={of_labels}."
        )


@keras.saving.register_keras_serializable("keras_bert_d2l")
class WeightedCrossEntropy(keras.losses.Loss):
    """Cross entropy from logits, averaged over the weights of the *global* batch.

    The loss is `sum(w * l) / sum(w)`: a padded prediction (weight 0) counts neither above nor
    below the line, as in google-research/bert, `get_masked_lm_output`. Keras's own reductions
    divide by the number of slots, or by each replica's own sum of weights, which gives replicas
    with fewer predictions more say. Without any weight the loss is 0.

    A label below 0 (Hugging Face's is -100) has the weight 0, whatever its `sample_weight`.

    Args:
        name: Name of the loss.
        class_weights: A weight for each class, by which the weights of its labels are multiplied,
            as those of PyTorch's `CrossEntropyLoss`; `None`: ones.

    Call arguments:
        y_true: Labels, int `(...)` or `(..., 1)`.
        y_pred: Logits, `(..., C)`.
        sample_weight: `(...)`, or `(B,)` for those of whole rows; `None` for ones.
    """

    def __init__(
        self,
        name: str = "weighted_cross_entropy",
        class_weights: Sequence[float] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.class_weights = None if class_weights is None else list(class_weights)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        losses = self.call(y_true, y_pred)
        labels = labels_of(ops.cast(y_true, "int32"), losses.shape)
        weights = label_weights(labels, sample_weight)
        if self.class_weights is not None:
            of_classes = ops.convert_to_tensor(self.class_weights, "float32")
            weights = weights * ops.take(of_classes, ops.maximum(labels, 0))
        return weighted_mean(losses, weights)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return cross_entropy(y_true, y_pred)

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name, "class_weights": self.class_weights}


@keras.saving.register_keras_serializable("keras_bert_d2l")
class WeightedBinaryCrossEntropy(keras.losses.Loss):
    """Cross entropy of independent yes-or-no decisions, averaged as `WeightedCrossEntropy`.

    Without weights it is PyTorch's `BCEWithLogitsLoss`. A label below 0, one that is not known,
    has the weight 0.

    Args:
        name: Name of the loss.
        class_weights: A weight for each class, a column of the labels; `None`: ones.

    Call arguments:
        y_true: 1 (yes) or 0 (no), `(B, C)`, or `(B,)` where C is 1.
        y_pred: Logits, `(B, C)`.
        sample_weight: `(B,)` or `(B, C)`, or `None` for ones.
    """

    def __init__(
        self,
        name: str = "weighted_binary_cross_entropy",
        class_weights: Sequence[float] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.class_weights = None if class_weights is None else list(class_weights)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        losses = self.call(y_true, y_pred)
        weights = label_weights(labels_of(y_true, losses.shape), sample_weight)
        if self.class_weights is not None:
            weights = weights * ops.convert_to_tensor(self.class_weights, "float32")
        return weighted_mean(losses, weights)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return binary_cross_entropy(y_true, y_pred)

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name, "class_weights": self.class_weights}


@keras.saving.register_keras_serializable("keras_bert_d2l")
class WeightedSquaredError(keras.losses.Loss):
    """Squared error, averaged over the weights of the global batch.

    Without weights it is PyTorch's `MSELoss`.

    Args:
        name: Name of the loss.

    Call arguments:
        y_true: Scores, `(B, K)`, or `(B,)` where K is 1.
        y_pred: `(B, K)`.
        sample_weight: `(B,)`, or `None` for ones.
    """

    def __init__(self, name: str = "weighted_squared_error", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        errors = self.call(y_true, y_pred)
        return weighted_mean(errors, label_weights(ops.zeros_like(errors), sample_weight))

    def call(self, y_true: Any, y_pred: Any) -> Any:
        y_pred = ops.cast(y_pred, "float32")
        return ops.square(labels_of(ops.cast(y_true, "float32"), y_pred.shape) - y_pred)

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name}
