"""Contrastive losses of text embeddings, for groups and for pairs, and losses of short vectors.

B batch, D hidden width.
"""

from collections.abc import Sequence
from typing import Self

import keras
from keras import ops

from keras_bert_d2l.checks import check_integer, check_positive, check_that, negative_of
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

    rows_together = 2

    def __init__(self, temperature: float = 0.05, name: str = "ranking") -> None:
        super().__init__(temperature, name)

    def _candidates(self, groups: Tensor) -> Tensor:
        in_a_pair = groups >= 0
        is_first = in_a_pair & (ops.cumsum(ops.cast(in_a_pair, "int32")) % 2 == 1)
        return is_first[:, None] & ~is_first[None, :] & ~_are_of_the_group(groups)


def _are_of_the_group(groups: Tensor) -> Tensor:
    """Return a mask `(B, B)` of the negatives that are also in the group of each vector."""
    return (groups >= 0)[:, None] & (groups[None, :] == negative_of(groups)[:, None])


def inner_loss(loss: object) -> object:
    """Return the loss that a `MatryoshkaLoss` sums, or another loss unchanged."""
    return loss.loss if isinstance(loss, MatryoshkaLoss) else loss


@keras.saving.register_keras_serializable("keras_bert_d2l")
class MatryoshkaLoss(keras.losses.Loss):
    """Sum of a loss over vectors of several widths, so that vectors can be truncated later.

    Each width uses the first components of the vectors, normalized to length 1.

    Source: Kusupati et al. 2022 (Matryoshka Representation Learning), equation 1;
    sentence-transformers, `MatryoshkaLoss`.

    Args:
        loss: The loss of each width, for example `RankingLoss()`.
        dims: The widths. Include the full width, unless all vectors will be truncated.
        weights: The weight of each width in the sum. `None`: ones.
        name: Name of the loss.

    Call arguments: As for `loss`.

    Raises:
        ValueError: `loss` is not a loss, there are no `dims`, one is larger than the vectors, or
            `weights` has a different length.

    Example:

    ```python
    import numpy as np
    import keras_bert_d2l as kb

    loss = kb.MatryoshkaLoss(kb.CosineLoss(), dims=[2, 1])
    vectors = np.array([[1.0, 0.0], [0.6, 0.8]])  # cosine 0.6; cosine of the first components 1
    assert abs(float(loss(np.array([1.0, 1.0]), vectors)) - 0.16) < 1e-6
    ```
    """

    def __init__(
        self,
        loss: keras.losses.Loss,
        dims: Sequence[int],
        weights: Sequence[float] | None = None,
        name: str = "matryoshka",
    ) -> None:
        super().__init__(name=name)
        check_that(isinstance(loss, keras.losses.Loss), "loss", "a loss of Keras", loss)
        check_that(
            isinstance(dims, list | tuple) and len(dims) > 0, "dims", "a list of widths", dims
        )
        self.loss, self.dims = loss, [check_integer("dims", dim, 1) for dim in dims]
        self.weights = [1.0] * len(dims) if weights is None else list(weights)
        number = len(self.dims)
        check_that(len(self.weights) == number, "weights", f"{number} numbers", weights)
        for weight in self.weights:
            check_positive("weights", weight)

    @property
    def compares_rows(self) -> bool:
        """Whether the loss needs labels with the number of each query; see `QueryLoss`."""
        return getattr(self.loss, "compares_rows", False)

    def __call__(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        vectors = ops.cast(y_pred, "float32")
        width = vectors.shape[-1]
        is_right = max(self.dims) <= width
        check_that(is_right, "dims", f"at most {width}, the width of the vectors", self.dims)
        return sum(
            weight * self.loss(y_true, ops.normalize(vectors[:, :dim]), sample_weight)
            for dim, weight in zip(self.dims, self.weights, strict=True)
        )

    def get_config(self) -> ConfigDict:
        loss = keras.saving.serialize_keras_object(self.loss)
        return {"name": self.name, "loss": loss, "dims": self.dims, "weights": self.weights}

    @classmethod
    def from_config(cls, config: ConfigDict) -> Self:
        return cls(**{**config, "loss": keras.saving.deserialize_keras_object(config["loss"])})
