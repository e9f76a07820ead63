"""The loss of the pretraining heads: labels, logits and weights in, one number out."""

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
        y_true: Labels, int `(...)`.
        y_pred: Logits, `(..., C)`.

    Returns: float32 `(...)`.
    """
    return ops.sparse_categorical_crossentropy(
        ops.cast(y_true, "int32"), ops.cast(y_pred, "float32"), from_logits=True
    )


@keras.saving.register_keras_serializable("keras_bert_d2l")
class WeightedCrossEntropy(keras.losses.Loss):
    """Cross entropy from logits, averaged over the weights of the *global* batch.

    The loss is `sum(w * l) / sum(w)`: a padded prediction (weight 0) counts neither above nor
    below the line, as in google-research/bert, `get_masked_lm_output`. Keras's own reductions
    divide by the number of slots, or by each replica's own sum of weights, which gives replicas
    with fewer predictions more say. Without any weight the loss is 0.

    Args:
        name: Name of the loss.

    Call arguments:
        y_true: Labels, int `(...)`.
        y_pred: Logits, `(..., C)`.
        sample_weight: `(...)`, or `None` for ones.
    """

    def __init__(self, name: str = "weighted_cross_entropy", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        losses = self.call(y_true, y_pred)
        if sample_weight is None:
            weights = ops.ones_like(losses)
        else:
            weights = ops.cast(sample_weight, losses.dtype)
            if weights.shape != losses.shape and None not in (*weights.shape, *losses.shape):
                raise ValueError(
                    "The weights must have the shape of the labels, one for each prediction. "
                    f"Received: sample_weight.shape={tuple(weights.shape)}, labels' shape="
                    f"{tuple(losses.shape)}."
                )
        # Each replica returns its share of the global mean; gradients and logs are summed.
        total_weight = sum_over_replicas(ops.sum(weights))
        return ops.divide_no_nan(ops.sum(losses * weights), total_weight)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return cross_entropy(y_true, y_pred)

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name}
