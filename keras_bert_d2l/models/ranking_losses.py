"""The losses that compare the texts of a query: LambdaLoss, and the margin of a larger model.

R rows of a batch, those of one query one after the other; D hidden width.
"""

import abc
import math
from typing import Literal

import keras
from keras import ops

from keras_bert_d2l.checks import check_choice
from keras_bert_d2l.models.losses import label_weights, weighted_mean
from keras_bert_d2l.types import ConfigDict, Tensor

_RATIO = 10.0  # of the two weights of a pair in NDCG-Loss2++


class QueryLoss(keras.losses.Loss, abc.ABC):
    """Base class of losses that compare the rows of a query with each other.

    A loss with `compares_rows` needs all rows of a query in one batch, and labels `(R, 2)`: the
    number of the query, and the label of the row.
    """

    compares_rows = True

    def __call__(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        queries, labels = ops.unstack(ops.cast(y_true, "float32"), 2, axis=1)
        weights = label_weights(ops.zeros_like(labels), sample_weight)
        same = queries[:, None] == queries[None, :]  # (R, R)
        return self.of_rows(same, labels, ops.cast(y_pred, "float32"), weights)

    @abc.abstractmethod
    def of_rows(self, same: Tensor, labels: Tensor, y_pred: Tensor, weights: Tensor) -> Tensor:
        """Return the loss.

        Args:
            same: Which rows have the same query, bool `(R, R)`.
            labels: The label of each row, `(R,)`.
            y_pred: The outputs, `(R, ...)`.
            weights: The weight of each row, `(R,)`.
        """

    def get_config(self) -> ConfigDict:
        return {"name": self.name}


@keras.saving.register_keras_serializable("keras_bert_d2l")
class LambdaLoss(QueryLoss):
    """Listwise loss of rerankers: LambdaLoss with the weights of NDCG-Loss2++.

    Each pair of texts of a query with different labels must be in the order of its labels. Its
    cross-entropy is weighted by how much nDCG changes if the two texts trade places. The loss is
    the mean over all pairs of the batch, and 0 if there are none.

    Source: Wang et al. 2018 (The LambdaLoss Framework for Ranking Metric Optimization), equation
    17; sentence-transformers, `LambdaLoss`.

    Args:
        name: Name of the loss.

    Call arguments:
        y_true: The number of the query of each text and how relevant it is, `(R, 2)`.
        y_pred: The scores of the texts, `(R, 1)`.
        sample_weight: `(R,)`. `None`: ones. A text of weight 0 is ignored.

    Example:

    ```python
    import numpy as np
    import keras_bert_d2l as kb

    labels = np.array([[0, 1], [0, 0], [1, 0], [1, 1]])  # two queries with two texts each
    loss = kb.LambdaLoss()
    right, wrong = np.array([[2.0], [1.0], [3.0], [4.0]]), np.array([[1.0], [2.0], [4.0], [3.0]])
    assert loss(labels, right) < loss(labels, wrong)
    ```
    """

    def __init__(self, name: str = "lambda_loss") -> None:
        super().__init__(name=name)

    def of_rows(self, same: Tensor, labels: Tensor, y_pred: Tensor, weights: Tensor) -> Tensor:
        scores = ops.reshape(y_pred, (-1,))
        same = ops.cast(same & (weights > 0)[None, :], "float32")
        ranks, best_ranks = _ranks(scores, same), _ranks(labels, same)
        gains = ops.power(2.0, ops.maximum(labels, 0.0)) - 1
        best = ops.sum(same * (gains * _discount(best_ranks))[None, :], axis=1)
        gains = gains / ops.maximum(best, 1e-10)
        distances = ops.abs(ranks[:, None] - ranks[None, :])
        steps = _discount(ops.maximum(distances, 1.0)) - _discount(distances + 1)
        discounts = _discount(ranks)
        trades = ops.abs(discounts[:, None] - discounts[None, :])
        weight = (_RATIO * steps + trades) * ops.abs(gains[:, None] - gains[None, :])
        differences = scores[:, None] - scores[None, :]
        losses = weight * ops.softplus(-differences) / math.log(2)
        is_pair = same * ops.cast(labels[:, None] > labels[None, :], "float32")
        return weighted_mean(losses, is_pair * weights[:, None] * weights[None, :])


def _ranks(values: Tensor, same: Tensor) -> Tensor:
    """Return the rank of each row among those of its query, from 1, the largest value first."""
    places = ops.arange(ops.shape(values)[0])
    is_tied_before = (values[None, :] == values[:, None]) & (places[None, :] < places[:, None])
    is_before = (values[None, :] > values[:, None]) | is_tied_before
    return 1 + ops.sum(same * ops.cast(is_before, "float32"), axis=1)


def _discount(ranks: Tensor) -> Tensor:
    return math.log(2) / ops.log(1.0 + ranks)


@keras.saving.register_keras_serializable("keras_bert_d2l")
class MarginMSELoss(QueryLoss):
    """Distillation from the scores of a larger model: squared error of the margins.

    For each query, the margin is the score of its first text minus the score of another one. The
    student learns the margins of its teacher, so that their scores may have different scales.

    Source: Hofstätter et al. 2020 (Improving Efficient Neural Ranking Models with
    Cross-Architecture Knowledge Distillation), equation 4; sentence-transformers, `MarginMSELoss`.

    Args:
        similarity: `None` for a reranker, whose outputs are scores. `"dot"` or `"cosine"` for
            vectors: the first row of each query is then the query itself, which is compared with
            the rows of its texts.
        name: Name of the loss.

    Call arguments:
        y_true: The number of the query of each row and the score of the teacher, `(R, 2)`. The
            score in the row of a query itself is ignored.
        y_pred: Scores `(R, 1)`, or vectors `(R, D)`.
        sample_weight: `(R,)`. `None`: ones.

    Raises:
        ValueError: `similarity` is unknown.

    Example:

    ```python
    import numpy as np
    import keras_bert_d2l as kb

    teacher = np.array([[0, 9.0], [0, 2.0]])  # one query with two texts
    assert float(kb.MarginMSELoss()(teacher, np.array([[7.0], [1.0]]))) == 1.0  # 9 - 2 and 7 - 1
    ```
    """

    def __init__(
        self, similarity: Literal["dot", "cosine"] | None = None, name: str = "margin_mse"
    ) -> None:
        super().__init__(name=name)
        self.similarity = check_choice("similarity", similarity, (None, "dot", "cosine"))

    def of_rows(self, same: Tensor, labels: Tensor, y_pred: Tensor, weights: Tensor) -> Tensor:
        places = ops.arange(ops.shape(labels)[0])
        first = ops.argmax(ops.cast(same, "int32"), axis=1)  # row of the query's first row
        first = ops.cast(first, places.dtype)
        is_other = places > first
        scores = y_pred[:, 0]
        if self.similarity is not None:
            vectors = ops.normalize(y_pred, axis=-1) if self.similarity == "cosine" else y_pred
            scores = ops.sum(vectors * ops.take(vectors, first, axis=0), axis=-1)
            first = ops.minimum(first + 1, places[-1])
            is_other = places > first
        margins, expected = (ops.take(x, first, axis=0) - x for x in (scores, labels))
        return weighted_mean(
            ops.square(margins - expected), weights * ops.cast(is_other, "float32")
        )

    def get_config(self) -> ConfigDict:
        return {**super().get_config(), "similarity": self.similarity}
