"""The loss of vectors: those of one group are to be near each other, and far from all others.

B batch, D width of the vectors.
"""

from typing import Any

import keras
from keras import ops

from keras_bert_d2l.models.losses import label_weights, weighted_mean

_EXCLUDED = -1e9  # the logit of a vector with itself


@keras.saving.register_keras_serializable("keras_bert_d2l")
class ContrastiveLoss(keras.losses.Loss):
    """How badly a vector's group is told by its cosines with the other vectors of the batch.

    Each vector is to find those of its group among all others, which are its negatives: a cross
    entropy of the cosines over the temperature. It is averaged over the vectors that have a
    partner in the batch, of the global batch; without any it is 0. For groups of two, an `[a, b]`
    pair each, it is the loss with in-batch negatives of SimCSE and Sentence-BERT, in both
    directions. Vectors of one replica see each other alone.

    Source: Khosla et al. 2020 (Supervised Contrastive Learning), equation 2; for pairs Chen et al.
    2020 (SimCLR), section 2.1. The temperature is that of Gao et al. 2021 (SimCSE).

    Args:
        temperature: What the cosines are divided by: the smaller, the more the nearest count.
        name: Name of the loss.

    Call arguments:
        y_true: The group of each vector, int `(B,)`; one below 0 is in no group, and a negative
            of all others.
        y_pred: Vectors, `(B, D)`.
        sample_weight: `(B,)`, or `None` for ones.

    Raises:
        ValueError: The temperature is not above 0.
    """

    def __init__(self, temperature: float = 0.05, name: str = "contrastive", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        if not temperature > 0:
            raise ValueError(
                f"`temperature` must be above 0. Received: temperature={temperature!r}."
            )
        self.temperature = temperature

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        groups = ops.reshape(ops.cast(y_true, "int32"), (-1,))
        partners = _partners(groups)
        has_partner = ops.cast(ops.any(partners, axis=1), "float32")
        weights = label_weights(groups, sample_weight) * has_partner
        return weighted_mean(self.call(groups, y_pred), weights)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Returns the loss of each vector, float32 `(B,)`, 0 without a partner."""
        partners = ops.cast(_partners(y_true), "float32")  # (B, B)
        vectors = ops.normalize(ops.cast(y_pred, "float32"), axis=-1)
        logits = ops.matmul(vectors, ops.transpose(vectors)) / self.temperature
        itself = ops.eye(ops.shape(logits)[0], dtype="float32")
        log_probabilities = ops.log_softmax(logits + _EXCLUDED * itself, axis=1)
        return -ops.divide_no_nan(
            ops.sum(partners * log_probabilities, axis=1), ops.sum(partners, axis=1)
        )

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name, "temperature": self.temperature}


def _partners(groups: Any) -> Any:
    """Tells which two of a batch are of one group, and not the same, bool `(B, B)`."""
    is_same = (groups[:, None] == groups[None, :]) & (groups >= 0)[:, None]
    return is_same & ~ops.cast(ops.eye(ops.shape(groups)[0]), "bool")
