"""TextEmbedder: one vector per text.

B batch, T tokens, D hidden width.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_bert_d2l.checks import check_bool, check_integer, shown, wrong
from keras_bert_d2l.layers.heads import Pooling, PoolingKind, precise_policy, unit
from keras_bert_d2l.models.bert import BERTModel, checked_bert
from keras_bert_d2l.models.compiling import Training
from keras_bert_d2l.models.embedding_losses import ContrastiveLoss, CosineLoss, RankingLoss
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.models.text_inputs import Preprocessor, without_pandas
from keras_bert_d2l.types import Option, Tensor


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
