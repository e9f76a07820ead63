"""`rerank`: sort texts by how well they answer a query, and its signature.

N: number of texts.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from keras_bert_d2l.checks import check_integer, check_that, check_type
from keras_bert_d2l.inference.prediction import Result, Texts, asked_model, text_answers
from keras_bert_d2l.signatures.signature import Answer, AnswerSignatures, Signature
from keras_bert_d2l.tasks.regress.model import SequenceRegressor
from keras_bert_d2l.tasks.rerank.model import Reranker
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text_arguments import text_list
from keras_bert_d2l.types import PathLike

_QUERY = tf.TensorSpec((), tf.string, name="query")
_TEXTS = tf.TensorSpec((None,), tf.string, name="texts")


@dataclasses.dataclass(frozen=True, repr=False)
class Ranked(Result):
    """A text with its score for a query.

    Attributes:
        index: Index of the text in the list, from 0.
        score: How well the text answers the query: higher is better.
        text: The text.

    Example:

    ```python
    import keras_bert_d2l as kb

    kb.Ranked(index=2, score=0.93, text="click on forgot password")
    ```
    """

    index: int
    score: float
    text: str


def rerank(
    model: SequenceRegressor | PathLike,
    query: str,
    texts: Texts,
    *,
    top_k: int | None = None,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    max_len: int | None = None,
    truncate: bool = True,
) -> list[Ranked]:
    """Sort texts by how well they answer a query, for example the results of a search.

    The scores are those of `CrossEncoder.predict` of sentence-transformers. They can be compared
    within one query; whether they are probabilities depends on the model.

    Args:
        model: A `Reranker`, a `SequenceRegressor` with one score, or the path or the name of a
            checkpoint, which is loaded at each call. A checkpoint of a model with one score counts
            as a reranker.
        query: The query.
        texts: The texts, N.
        top_k: Maximum number of results. `None`: all texts.
        tokenizer: As for `classify`.
        batch_size: Pairs of the query and a text per batch.
        max_len: Maximum number of tokens in a pair. `None`: that of the model.
        truncate: As for `classify`, for pairs. The longer part of a pair is truncated first.

    Returns: one `Ranked` per text, best first; ties keep the order of `texts`.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: As for `classify`, the model has several scores, `query` is not a string,
            `texts` is one, or `top_k` is below 1.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] who did it ada".split()))
    bert = kb.BERTModel(9, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    reranker = kb.Reranker(bert, tokenizer=tokenizer)
    for found in kb.rerank(reranker, "who did it", ["ada did", "it"], top_k=1):
        print(found.score, found.text)
    ```
    """
    check_type("query", query, str)
    check_that(not isinstance(texts, str), "texts", "a list of texts", texts)
    if top_k is not None:
        check_integer("top_k", top_k, 1)
    rows = text_list("texts", texts)
    model, tokenizer = asked_model(model, Reranker, SequenceRegressor, tokenizer=tokenizer)
    expected = "a model with one score"
    check_that(len(model.labels) == 1, "model", expected, f"the scores {model.labels}")
    different = [*dict.fromkeys(rows)]  # equal texts have equal scores, to the last digit
    answers = text_answers(model, tokenizer, query, different, batch_size, max_len, truncate)
    scores = {text: one["scores"][0] for text, one in zip(different, answers, strict=True)}
    best = sorted(range(len(rows)), key=lambda index: -scores[rows[index]])[:top_k]
    return [Ranked(index, scores[rows[index]], rows[index]) for index in best]


class RerankSignatures(AnswerSignatures):
    """Signatures of a `Reranker`: those of pairs, and `rerank` for the texts of one query."""

    def signatures(self) -> dict[str, Signature]:
        found = super().signatures()
        return {**found, "rerank": self.of_strings(self.rerank, _QUERY, _TEXTS)}

    def rerank(self, query: tf.Tensor, texts: tf.Tensor) -> Answer:
        """Score texts for a query, a few at a time, the longest first.

        Args:
            query: A string, `()`.
            texts: Strings `(N,)`.

        Returns: `scores`, float32 `(N,)`, as from `keras_bert_d2l.rerank`; `logits`, float32
            `(N,)`, before the activation; `num_tokens`, int32 `(N,)`, which the model has read; and
            `truncated`, bool `(N,)`.
        """
        different, places = tf.unique(texts)  # equal texts have equal scores, to the last digit
        batch, truncated = self.batch(tf.fill(tf.shape(different), query), different)
        order = tf.argsort(batch["valid_lens"], direction="DESCENDING", stable=True)
        by_length = {name: tf.gather(x, order) for name, x in batch.items()}
        found = self.in_steps(by_length, "logits", of_tokens=False)["logits"]
        logits = tf.gather(tf.gather(found, tf.argsort(order)), places)
        model: Any = self.run.model
        return {
            "scores": model.answer(logits)["scores"][:, 0],
            "logits": logits[:, 0],
            "num_tokens": tf.gather(batch["valid_lens"], places),
            "truncated": tf.gather(truncated, places),
        }
