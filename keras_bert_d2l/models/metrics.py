"""The metrics of the pretraining heads, exact over a whole data set."""

import keras

from keras_bert_d2l.models.losses import cross_entropy


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
