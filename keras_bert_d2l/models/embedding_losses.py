"""The losses of text embeddings: contrastive for groups and for pairs, and of cosines.

B batch, D hidden width.
"""

import keras
from keras import ops

from keras_bert_d2l.checks import check_positive, is_in_graph, negative_of
from keras_bert_d2l.models.losses import label_weights, weighted_mean
from keras_bert_d2l.types import ConfigDict, Tensor

_EXCLUDED = -1e9  # added to the logit of a vector with itself


@keras.saving.register_keras_serializable("keras_bert_d2l")
class ContrastiveLoss(keras.losses.Loss):
    """Supervised contrastive loss: softmax cross-entropy over cosine similarities.

    All vectors of the batch outside a vector's group are its negatives. The logits are the cosine
    similarities divided by the temperature. The loss is averaged over the vectors of the global
    batch that share their group with at least one other vector, and is 0 if there are none. For
    groups of two, it is the loss of SimCLR; `RankingLoss` is better for search. Vectors are
    compared only within a replica.

    Source: Khosla et al. 2020 (Supervised Contrastive Learning), equation 2; for pairs, Chen et al.
    2020 (SimCLR), section 2.1. The default temperature is from Gao et al. 2021 (SimCSE).

    Args:
        temperature: Divisor of the cosine similarities. Smaller values emphasize the nearest
            vectors.
        name: Name of the loss.

    Call arguments:
        y_true: The group of each vector, int `(B,)`. A vector with a negative label has no group
            and is a negative for all others; with the label -1000 - g, for all outside group g.
        y_pred: Vectors, `(B, D)`.
        sample_weight: `(B,)`. `None`: ones.

    Raises:
        ValueError: `temperature` is not positive.

    Example:

    ```python
    import numpy as np
    import keras_bert_d2l as kb

    loss = kb.ContrastiveLoss()
    vectors = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    apart, mixed = loss(np.array([0, 0, 1, 1]), vectors), loss(np.array([0, 1, 0, 1]), vectors)
    assert apart < mixed
    ```
    """

    compares_vectors = True  # which a student learns by their cosines

    def __init__(self, temperature: float = 0.05, name: str = "contrastive") -> None:
        super().__init__(name=name)
        check_positive("temperature", temperature)
        self.temperature = temperature

    def __call__(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        groups = ops.reshape(ops.cast(y_true, "int32"), (-1,))
        has_partner = ops.cast(ops.any(self._partners(groups), axis=1), "float32")
        weights = label_weights(groups, sample_weight) * has_partner
        return weighted_mean(self.call(groups, y_pred), weights)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return the loss of each vector, float32 `(B,)`; 0 if it has no partner."""
        partners = ops.cast(self._partners(y_true), "float32")  # (B, B)
        vectors = ops.normalize(ops.cast(y_pred, "float32"), axis=-1)
        logits = ops.matmul(vectors, ops.transpose(vectors)) / self.temperature
        logits = ops.where(self._candidates(y_true), logits, _EXCLUDED)
        log_probabilities = ops.log_softmax(logits, axis=1)
        return -ops.divide_no_nan(
            ops.sum(partners * log_probabilities, axis=1), ops.sum(partners, axis=1)
        )

    def _candidates(self, groups: Tensor) -> Tensor:
        """Return a mask `(B, B)` of the vectors that each vector is compared with."""
        return ~ops.cast(ops.eye(ops.shape(groups)[0]), "bool") & ~_are_of_the_group(groups)

    def _partners(self, groups: Tensor) -> Tensor:
        """Return a mask `(B, B)` of the candidates in the group of each vector."""
        is_same = (groups[:, None] == groups[None, :]) & (groups >= 0)[:, None]
        return is_same & self._candidates(groups)

    def get_config(self) -> ConfigDict:
        return {"name": self.name, "temperature": self.temperature}


@keras.saving.register_keras_serializable("keras_bert_d2l")
class RankingLoss(ContrastiveLoss):
    """Contrastive loss of pairs and triplets: the second text must be found from the first.

    The candidates for a first text are the second texts and the negatives of the whole batch. First
    texts are not compared with each other, and neither are the candidates, because similar texts
    on one side are no mistake of a search. If several pairs have the same group, each of their
    second texts is right. Vectors are compared only within a replica, which must get whole pairs.

    Source: Henderson et al. 2017, section 4.4; sentence-transformers,
    `MultipleNegativesRankingLoss`, which treats pairs with the same first text as different.

    Args:
        temperature: Divisor of the cosine similarities. Smaller values emphasize the nearest
            vectors.
        name: Name of the loss.

    Call arguments:
        y_true: The group of each vector, int `(B,)`. The two texts of a pair follow each other and
            have the same group. A negative has a negative number: -1, or -1000 - g if its text also
            occurs in a pair of group g, so that it is not a negative for that group.
        y_pred: Vectors, `(B, D)`.
        sample_weight: `(B,)`. `None`: ones.

    Raises:
        ValueError: `temperature` is not positive.

    Example:

    ```python
    import numpy as np
    import keras_bert_d2l as kb

    vectors = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.2, 0.9]])  # two pairs
    triplets = np.concatenate([vectors[:2], [[0.8, 0.2]], vectors[2:], [[0.3, 0.7]]])
    loss = kb.RankingLoss()
    of_pairs, of_triplets = np.array([0, 0, 1, 1]), np.array([0, 0, -1, 1, 1, -1])
    assert loss(of_pairs, vectors) < loss(of_triplets, triplets)
    ```
    """

    def __init__(self, temperature: float = 0.05, name: str = "ranking") -> None:
        super().__init__(temperature, name)

    def _candidates(self, groups: Tensor) -> Tensor:
        in_a_pair = groups >= 0
        is_first = in_a_pair & (ops.cumsum(ops.cast(in_a_pair, "int32")) % 2 == 1)
        return is_first[:, None] & ~is_first[None, :] & ~_are_of_the_group(groups)


def _are_of_the_group(groups: Tensor) -> Tensor:
    """Return a mask `(B, B)` of the negatives that are also in the group of each vector."""
    return (groups >= 0)[:, None] & (groups[None, :] == negative_of(groups)[:, None])


@keras.saving.register_keras_serializable("keras_bert_d2l")
class CosineLoss(keras.losses.Loss):
    """Squared difference between the cosine of each pair of vectors and its label.

    Source: Reimers and Gurevych 2019 (Sentence-BERT), section 3, regression objective.

    Args:
        name: Name of the loss.

    Call arguments:
        y_true: The cosine to learn, float `(B,)`: the same number for both vectors of a pair.
        y_pred: Vectors, `(B, D)`. Rows 0 and 1 are a pair, rows 2 and 3 the next one, and so on.
        sample_weight: `(B,)`. `None`: ones.

    Example:

    ```python
    import numpy as np
    import keras_bert_d2l as kb

    vectors = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert float(kb.CosineLoss()(np.array([0.5, 0.5]), vectors)) == 0.25
    ```
    """

    def __init__(self, name: str = "cosine") -> None:
        super().__init__(name=name)

    def __call__(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        cosines = ops.reshape(ops.cast(y_true, "float32"), (-1,))
        weights = label_weights(ops.zeros_like(cosines), sample_weight)
        return weighted_mean(self.call(cosines, y_pred), weights[::2])

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return the loss of each pair, float32 `(B // 2,)`.

        Raises:
            ValueError: B is odd. In a TensorFlow graph, it is an assertion; see `value_errors`.
        """
        vectors = ops.normalize(ops.cast(_whole_pairs(y_pred), "float32"), axis=-1)
        return ops.square(ops.sum(vectors[::2] * vectors[1::2], axis=-1) - y_true[::2])

    def get_config(self) -> ConfigDict:
        return {"name": self.name}


def _whole_pairs(vectors: Tensor) -> Tensor:
    """Return the vectors unchanged; raise `ValueError` if their number is odd."""
    is_even = ops.shape(vectors)[0] % 2 == 0
    message = (
        "`batch_size` must be even for CosineLoss, which compares the two texts of each pair. "
        "Received: a batch with an odd number of texts."
    )
    if is_in_graph(is_even):
        import tensorflow as tf

        with tf.control_dependencies([tf.debugging.Assert(is_even, [message])]):
            return tf.identity(vectors)
    if not is_even:
        raise ValueError(message)
    return vectors
