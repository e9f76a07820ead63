"""Losses of text embeddings that compare the vectors of each pair or triplet.

B batch, N examples, D hidden width.
"""

import abc
from collections.abc import Sequence
from typing import ClassVar

import keras
from keras import ops

from keras_bert_d2l.checks import check_positive, is_in_graph
from keras_bert_d2l.models.losses import label_weights, weighted_mean
from keras_bert_d2l.types import ConfigDict, Tensor

_EXCLUDED = -1e9  # added to the logit of two pairs that are not compared


class ExampleLoss(keras.losses.Loss, abc.ABC):
    """Base class of losses of examples, each of which has its vectors in successive rows.

    Attributes:
        rows_together: Number of rows of an example: 2 for pairs, 3 for triplets.
    """

    rows_together: ClassVar[int] = 2

    def __call__(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        number = self.rows_together
        labels = ops.reshape(ops.cast(y_true, "float32"), (-1,))
        weights = label_weights(ops.zeros_like(labels), sample_weight)
        rows = ops.cast(self._whole_examples(y_pred), "float32")
        vectors = [rows[row::number] for row in range(number)]
        return self.of_examples(labels[::number], vectors, weights[::number])

    @abc.abstractmethod
    def of_examples(self, labels: Tensor, vectors: Sequence[Tensor], weights: Tensor) -> Tensor:
        """Return the loss.

        Args:
            labels: The label of each example, float32 `(N,)`.
            vectors: The first vectors of all examples, the second ones and so on, float32 `(N, D)`.
            weights: The weight of each example, float32 `(N,)`.
        """

    def _whole_examples(self, vectors: Tensor) -> Tensor:
        """Return the vectors unchanged; raise `ValueError` if an example is not complete."""
        number = self.rows_together
        is_whole = ops.shape(vectors)[0] % number == 0
        kind = "an odd number" if number == 2 else "another number"
        message = (
            f"`batch_size` must be {'even' if number == 2 else f'a multiple of {number}'} for "
            f"{type(self).__name__}, which compares the {number} texts of each example. "
            f"Received: a batch with {kind} of texts."
        )
        if is_in_graph(is_whole):
            import tensorflow as tf

            with tf.control_dependencies([tf.debugging.Assert(is_whole, [message])]):
                return tf.identity(vectors)
        if not is_whole:
            raise ValueError(message)
        return vectors

    def get_config(self) -> ConfigDict:
        return {"name": self.name}


def _cosines(first: Tensor, second: Tensor) -> Tensor:
    return ops.sum(ops.normalize(first) * ops.normalize(second), axis=-1)


def _distances(first: Tensor, second: Tensor) -> Tensor:
    squares = ops.sum(ops.square(first - second), axis=-1)
    # The square root has no finite gradient at 0, the distance of equal texts.
    return ops.where(squares > 0, ops.sqrt(ops.where(squares > 0, squares, 1.0)), 0.0)


@keras.saving.register_keras_serializable("keras_bert_d2l")
class CosineLoss(ExampleLoss):
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

    def of_examples(self, labels: Tensor, vectors: Sequence[Tensor], weights: Tensor) -> Tensor:
        return weighted_mean(ops.square(_cosines(*vectors) - labels), weights)


@keras.saving.register_keras_serializable("keras_bert_d2l")
class CoSENTLoss(ExampleLoss):
    """Loss of the order of pairs: pairs with higher scores must have higher cosines.

    The loss is `log(1 + sum(exp((cosine of k - cosine of l) / temperature)))` over all pairs k and
    l of the batch where l has the higher score. Only the order of the scores matters. Pairs are
    compared only within a replica.

    Source: Huang et al. 2024 (CoSENT), equation 7; sentence-transformers, `CoSENTLoss`, whose
    `scale` is the inverse of the temperature.

    Args:
        temperature: Divisor of the cosine similarities.
        name: Name of the loss.

    Call arguments:
        y_true: The score of each pair, float `(B,)`: the same number for both vectors of a pair.
        y_pred: Vectors, `(B, D)`, in the order of `CosineLoss`.
        sample_weight: `(B,)`, the factor of the terms of a pair in the sum. `None`: ones.

    Raises:
        ValueError: `temperature` is not positive.

    Example:

    ```python
    import numpy as np
    import keras_bert_d2l as kb

    vectors = np.array([[1.0, 0.0], [1.0, 0.1], [1.0, 0.0], [0.0, 1.0]])  # the first pair is near
    right, wrong = np.array([0.9, 0.9, 0.1, 0.1]), np.array([0.1, 0.1, 0.9, 0.9])
    assert kb.CoSENTLoss()(right, vectors) < kb.CoSENTLoss()(wrong, vectors)
    ```
    """

    def __init__(self, temperature: float = 0.05, name: str = "cosent") -> None:
        super().__init__(name=name)
        check_positive("temperature", temperature)
        self.temperature = temperature

    def of_examples(self, labels: Tensor, vectors: Sequence[Tensor], weights: Tensor) -> Tensor:
        logits = _cosines(*vectors) / self.temperature
        factors = weights[:, None] * weights[None, :]
        is_compared = (labels[:, None] < labels[None, :]) & (factors > 0)
        differences = (
            logits[:, None] - logits[None, :] + ops.log(ops.where(is_compared, factors, 1))
        )
        terms = ops.where(is_compared, differences, _EXCLUDED)
        loss = ops.logsumexp(ops.append(ops.zeros(1), ops.reshape(terms, (-1,))))
        return weighted_mean(loss, ops.ones(()))

    def get_config(self) -> ConfigDict:
        return {**super().get_config(), "temperature": self.temperature}


@keras.saving.register_keras_serializable("keras_bert_d2l")
class TripletLoss(ExampleLoss):
    """Loss of triplets: the second text must be nearer to the first than the third, by a margin.

    The loss of a triplet is `max(distance(1, 2) - distance(1, 3) + margin, 0)`, with Euclidean
    distances.

    Source: Reimers and Gurevych 2019 (Sentence-BERT), section 3, triplet objective;
    sentence-transformers, `TripletLoss`, with the same defaults.

    Args:
        margin: Margin. Vectors of length 1 have Euclidean distances of at most 2.
        name: Name of the loss.

    Call arguments:
        y_true: Ignored, `(B,)`.
        y_pred: Vectors, `(B, D)`. Rows 0 to 2 are a triplet, rows 3 to 5 the next one, and so on.
        sample_weight: `(B,)`. `None`: ones.

    Raises:
        ValueError: `margin` is not positive.

    Example:

    ```python
    import numpy as np
    import keras_bert_d2l as kb

    vectors = np.array([[1.0, 0.0], [1.0, 1.0], [4.0, 0.0]])  # distances 1 and 3
    assert float(kb.TripletLoss()(np.zeros(3), vectors)) == 3
    ```
    """

    rows_together = 3

    def __init__(self, margin: float = 5.0, name: str = "triplet") -> None:
        super().__init__(name=name)
        check_positive("margin", margin)
        self.margin = margin

    def of_examples(self, labels: Tensor, vectors: Sequence[Tensor], weights: Tensor) -> Tensor:
        first, second, third = vectors
        difference = _distances(first, second) - _distances(first, third)
        return weighted_mean(ops.relu(difference + self.margin), weights)

    def get_config(self) -> ConfigDict:
        return {**super().get_config(), "margin": self.margin}
