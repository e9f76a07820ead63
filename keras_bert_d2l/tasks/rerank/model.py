"""Reranker: how well each of several texts answers a query.

B batch.
"""

from collections.abc import Sequence
from typing import Literal

import keras

from keras_bert_d2l.checks import check_that, checked_max_len
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.compiling import Training
from keras_bert_d2l.models.losses import WeightedBinaryCrossEntropy, binary_metrics
from keras_bert_d2l.models.text_inputs import Preprocessor
from keras_bert_d2l.tasks.regress.model import SequenceRegressor
from keras_bert_d2l.types import Option, Tensor


class QueryPairs(Preprocessor):
    """Converts pairs of a query and a text."""

    form = '{"texts": queries, "texts_b": texts}'

    def max_len(self, num_texts: int = 1) -> int:
        return super().max_len()  # the model's own limit, for pairs too


@keras.saving.register_keras_serializable("keras_bert_d2l")
class Reranker(SequenceRegressor):
    """Cross-encoder that scores how well a text answers a query, to sort the results of a search.

    It reads the query and the text as one pair, which is more accurate than the comparison of two
    vectors of a `TextEmbedder`, and slower. `rerank` sorts texts by the scores.

    The outputs are logits, also in training. `rerank`, exports and servers apply `activation`.
    `fit`, `evaluate` and `predict` also take strings: a dictionary of `texts`, the queries, and
    `texts_b`, the text for each query.

    Source: Nogueira and Cho 2019; sentence-transformers, `CrossEncoder`.

    Args:
        bert: The pretrained model.
        labels: The name of the score.
        activation: What turns logits into scores: `"sigmoid"` or `"linear"`.
        max_len: Maximum number of tokens in the row of a query and a text. `None`: that of `bert`.
        **options: `dropout`, `pooling`, `tokenizer` and `name`, as in `SequenceClassifier`.

    Call arguments: As for `SequenceClassifier`.

    Returns: Logits `(B, 1)`. Labels are floats from 0 to 1, `(B, 1)` or `(B,)`.

    Raises:
        ValueError: As for `SequenceRegressor`, `labels` has more than one name, or `max_len` is
            out of range.

    Example:

    ```python
    import keras_bert_d2l as kb

    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] who wrote it ada did the end".split())
    bert = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny", vocab_size=len(vocab)))
    reranker = kb.Reranker(bert, tokenizer=kb.Tokenizer(vocab))
    reranker.compile(kb.BERTAdamW(2e-5))
    pairs = {"texts": ["who wrote it", "who wrote it"], "texts_b": ["ada did", "the end"]}
    reranker.fit(pairs, [1.0, 0.0])
    ```
    """

    task = "rerank"
    preprocessing = QueryPairs
    ranks = True
    fields = ("labels", "activation", "dropout", "pooling", "max_len")
    command = "rerank QUERY --file FILE"

    def __init__(
        self,
        bert: BERTModel,
        labels: Sequence[str] = ("score",),
        *,
        activation: Literal["linear", "sigmoid"] = "sigmoid",
        max_len: int | None = None,
        **options: Option,
    ) -> None:
        super().__init__(bert, labels, activation=activation, **options)
        check_that(len(self.labels) == 1, "labels", "one name, that of the score", self.labels)
        self.head.activation = keras.activations.linear  # `answer` applies `activation`
        self.gives_logits = True
        if max_len is not None:
            checked_max_len(max_len, 5, self.bert_config.max_len)
        self.max_len = max_len

    @property
    def max_row_len(self) -> int:
        return self.max_len or super().max_row_len

    def answer(self, logits: Tensor) -> dict[str, Tensor]:
        """Return the `scores`, `(B, 1)`."""
        return {"scores": keras.activations.get(self.activation)(logits)}

    def default_training(self, class_weights: Sequence[float] | None) -> Training:
        return Training(WeightedBinaryCrossEntropy(), binary_metrics())
