"""TextEmbedder: one vector per text; its losses: contrastive for groups and pairs, and cosine.

B batch, T tokens, D hidden width.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bert_d2l.checks import (
    check_bool,
    check_integer,
    check_positive,
    is_in_graph,
    negative_of,
    shown,
    wrong,
)
from keras_bert_d2l.layers.heads import Pooling, PoolingKind, precise_policy, unit
from keras_bert_d2l.models.bert import BERTModel, checked_bert
from keras_bert_d2l.models.compiling import Training
from keras_bert_d2l.models.losses import label_weights, weighted_mean
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.models.text_inputs import Preprocessor, without_pandas
from keras_bert_d2l.types import ConfigDict, Option, Tensor

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


class SingleTexts(Preprocessor):
    """Converts texts, each of which has its own vector."""

    keys = ("texts",)
    form = "a list: put both texts of a pair next to each other, with the same label"


@keras.saving.register_keras_serializable("keras_bert_d2l")
class TextEmbedder(TaskModel):
    """Text encoder whose output vectors can be compared with each other.

    `fit`, `evaluate` and `predict` also take a list of texts, as in `SequenceClassifier`, but no
    pairs: every text has its own vector.

    Training moves texts of the same group close together. The labels are the groups: ids, or
    names in a list. For pairs of texts with the same meaning, use the index of the pair as the
    label of both texts, put one directly after the other, and compile with `RankingLoss()`. For
    pairs with scores, the labels are the scores, and the loss is `CosineLoss()`. These losses find
    pairs by their order, so `fit` then does not shuffle texts and arrays, and `batch_size` must not
    split a pair. Pass the pairs in random order, or fine-tune with `finetune`, which shuffles them.

    Source: Reimers and Gurevych 2019 (Sentence-BERT).

    Args:
        bert: The pretrained model.
        pooling: `"cls"` (the encoded `[CLS]`), or `"mean"` or `"max"` over all tokens.
        normalize: Whether to scale vectors to length 1, so that their dot product is the cosine.
        max_len: Maximum number of tokens in a row for `long_texts="cut"`. `None`: that of `bert`.
        **options: `long_texts`, as in `SequenceClassifier`, for the vectors of windows;
            `tokenizer`, which converts strings to batches; and `name`.

    Call arguments: As for `SequenceClassifier`.

    Returns: Vectors `(B, D)`. Labels are int `(B,)`; a text with a negative label has no group.

    Raises:
        ValueError: `pooling` is unknown, or `max_len` is out of range.

    Example:

    ```python
    import keras_bert_d2l as kb

    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a good fine bad poor film".split())
    bert = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny", vocab_size=len(vocab)))
    embedder = kb.TextEmbedder(bert, tokenizer=kb.Tokenizer(vocab))
    embedder.compile(kb.BERTAdamW(2e-5))
    texts = ["a good film", "a fine film", "a bad film", "a poor film"]
    embedder.fit(texts, [0, 0, 1, 1], batch_size=4, shuffle=False)
    ```
    """

    task = "embed"
    preprocessing = SingleTexts
    command = "embed --file FILE"
    outputs = ("embedding",)
    fields = ("pooling", "normalize", "long_texts", "max_len")
    has_head = False
    labels_are = "groups"

    def __init__(
        self,
        bert: BERTModel,
        pooling: PoolingKind = "mean",
        *,
        normalize: bool = True,
        max_len: int | None = None,
        **options: Option,
    ) -> None:
        bert = checked_bert(bert)
        head = Pooling(pooling, normalize=normalize, dtype=precise_policy(bert), name="head")
        super().__init__(bert, head=head, **options)
        self.pooling = pooling
        self.normalize = check_bool("normalize", normalize)
        longest = self.bert_config.max_len
        if max_len is not None and check_integer("max_len", max_len, least=3) > longest:
            raise wrong("max_len", f"at most {longest}, the maximum of `bert`", max_len)
        self.max_len = max_len

    @property
    def max_row_len(self) -> int:
        longest = super().max_row_len
        return self.max_len or longest if self.long_texts == "cut" else longest

    def head_outputs(self, encoded_X: Tensor, is_token: Tensor | None = None) -> Tensor:
        return self.head(encoded_X, is_token)

    def over_windows(self, *arguments: Any) -> Tensor:
        vectors = super().over_windows(*arguments)
        return unit(vectors) if self.normalize else vectors

    def default_training(self, class_weights: Sequence[float] | None) -> Training:
        return Training(ContrastiveLoss(), None)

    @property
    def is_order_free(self) -> bool:
        return not isinstance(self.loss, RankingLoss | CosineLoss)

    def _data(
        self,
        x: object,
        y: object = None,
        sample_weight: Tensor | None = None,
        batch_size: int | None = None,
        shuffle: bool = False,
    ) -> dict[str, Tensor]:
        if y is not None and not self.is_order_free:
            y = self.label_ids(without_pandas(y))
            self._check_order(np.asarray(y).reshape(-1), batch_size or 32, shuffle)
        return super()._data(x, y, sample_weight, batch_size, shuffle)

    def _check_order(self, y: np.ndarray, batch_size: int, shuffle: bool) -> None:
        """Raise `ValueError` unless the texts of each pair stay together."""
        loss = type(self.loss).__name__
        if shuffle:
            raise ValueError(
                f"`shuffle` must be False for {loss}, which finds pairs by their order. Received: "
                "shuffle=True. Omit it, and pass the pairs in random order."
            )
        in_a_pair = y >= 0 if isinstance(self.loss, RankingLoss) else np.ones(len(y), bool)
        labels = y[in_a_pair]
        pairs = labels[: len(labels) // 2 * 2].reshape(-1, 2)
        received = f"{len(labels)} texts in pairs" if len(labels) % 2 else ""
        for first, second in pairs[pairs[:, 0] != pairs[:, 1]][:1]:
            received = f"the labels {first} and {second} for one pair"
        if received:
            raise ValueError(
                "The two texts of a pair must follow each other and have the same label for "
                f"{loss}. Received: {received}. Reorder the texts and their labels."
            )
        if (np.cumsum(in_a_pair)[batch_size - 1 :: batch_size] % 2).any():
            raise ValueError(
                f"`batch_size` must not split a pair for {loss}. Received: "
                f"batch_size={batch_size}. Use a multiple of 2 for pairs, or of 3 for triplets, "
                "and put the texts of each pair next to each other."
            )

    def label_ids(self, y: object) -> Tensor:
        if not isinstance(y, list | tuple | np.ndarray):
            return y
        y = np.asarray(y)
        if isinstance(self.loss, CosineLoss):
            is_right = np.abs(y) <= 1 if y.dtype.kind in "biuf" else np.zeros(y.shape, bool)
            _check_labels(y, is_right, "numbers from -1 to 1 for CosineLoss")
            return y
        if y.dtype.kind in "USO":
            return np.unique(y, return_inverse=True)[1]
        if isinstance(self.loss, ContrastiveLoss):
            is_right = np.isfinite(y) & (y == np.floor(y))
            advice = "For scores, compile with CosineLoss()."
            _check_labels(y, is_right, "whole numbers, which identify groups", advice)
        return y


def _check_labels(y: np.ndarray, is_right: np.ndarray, kind: str, advice: str = "") -> None:
    for index in np.argwhere(~is_right)[:1]:
        label = y[tuple(index)]
        label = label.item() if isinstance(label, np.generic) else label
        raise ValueError(
            f"`labels` must be {kind}. Received: {shown(label)} at index {index[0]}. "
            f"{advice}".rstrip()
        )
