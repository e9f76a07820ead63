"""Texts in, vectors out; and the texts that are nearest to another.

B texts, D hidden width, k texts that are found.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from keras_bert_d2l.checkpoints.checks import check_vocabulary
from keras_bert_d2l.inference.batching import check_lengths, predict_texts
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks import TextEmbedder
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Match:
    """A text that was found.

    Attributes:
        text: The text.
        score: The cosine of its vector and the query's, from -1 to 1.
        index: Its place among the texts, from 0.
    """

    text: str
    score: float
    index: int


def embed(
    model: TextEmbedder | BERTModel,
    texts: str | Sequence[str],
    tokenizer: Tokenizer | None = None,
    *,
    batch_size: int = 32,
    truncate: bool = False,
) -> np.ndarray:
    """Makes texts vectors, by which they can be compared.

    The vectors of a `TextEmbedder` are as its `pooling` and `normalize` say. Those of a
    `BERTModel` are the mean over all tokens, of the length 1: what `TextEmbedder(model)` gives,
    which is the faster the second time, as it keeps its graph.

    Args:
        model: The model. Its vectors mean something where it was trained to give them, as the
            checkpoints of Sentence-BERT are.
        texts: A text, or a list of texts. An empty text has a vector as well.
        tokenizer: The model's tokenizer; `None`: that of the `TextEmbedder`.
        batch_size: Number of texts that pass through the model at once.
        truncate: Whether a text that is too long for the model loses its end.

    Returns: float32 `(B, D)`, for one text `(D,)`.

    Raises:
        ValueError: The model is that of another task, there is no tokenizer or not the model's, a
            text is too long, or `batch_size` is below 1.

    Example:

    ```python
    model, tokenizer, _ = load_pretrained("downloads/all-MiniLM-L6-v2")
    vectors = embed(model, ["the cat sat on the mat", "a feline on a rug"], tokenizer)
    vectors[0] @ vectors[1]  # their cosine
    ```
    """
    embedder, tokenizer = _embedder(model, tokenizer)
    if isinstance(texts, str):
        return _vectors(embedder, tokenizer, [texts], batch_size, truncate)[0]
    return _vectors(embedder, tokenizer, texts, batch_size, truncate)


@overload
def similar(
    model: TextEmbedder | BERTModel,
    texts: Sequence[str],
    query: str,
    top_k: int = 5,
    tokenizer: Tokenizer | None = None,
    *,
    batch_size: int = 32,
    truncate: bool = False,
) -> list[Match]: ...
@overload
def similar(
    model: TextEmbedder | BERTModel,
    texts: Sequence[str],
    query: list[str],
    top_k: int = 5,
    tokenizer: Tokenizer | None = None,
    *,
    batch_size: int = 32,
    truncate: bool = False,
) -> list[list[Match]]: ...
def similar(
    model: TextEmbedder | BERTModel,
    texts: Sequence[str],
    query: str | list[str],
    top_k: int = 5,
    tokenizer: Tokenizer | None = None,
    *,
    batch_size: int = 32,
    truncate: bool = False,
) -> list[Any]:
    """Finds the texts that are most like a query, by the cosine of their vectors.

    Args:
        model: The model, as for `embed`.
        texts: The texts to search.
        query: The text to compare them with, or a list of such texts.
        top_k: How many to find, k; all of them where there are fewer.
        tokenizer: As for `embed`.
        batch_size: As for `embed`.
        truncate: As for `embed`.

    Returns: the k best `Match`es, the best first, of equal ones the one that comes first in
        `texts`; for a list of queries a list of these.

    Raises:
        ValueError: As of `embed`, or `top_k` is below 1.

    Example:

    ```python
    for match in similar(model, answers, "how do i reset my password?", tokenizer=tokenizer):
        print(match.score, match.text)
    ```
    """
    if top_k < 1:
        raise ValueError(f"`top_k` must be at least 1. Received: top_k={top_k!r}.")
    if isinstance(texts, str):
        raise ValueError(f"`texts` must be a list of texts. Received: the text {texts!r:.80}.")
    embedder, tokenizer = _embedder(model, tokenizer)
    queries = [query] if isinstance(query, str) else list(query)
    both = _unit(_vectors(embedder, tokenizer, queries + list(texts), batch_size, truncate))
    cosines = both[: len(queries)] @ both[len(queries) :].T
    found = [
        [Match(texts[index], float(row[index]), int(index)) for index in _best(row, top_k)]
        for row in cosines
    ]
    return found[0] if isinstance(query, str) else found


def _embedder(
    model: TextEmbedder | BERTModel, tokenizer: Tokenizer | None
) -> tuple[TextEmbedder, Tokenizer]:
    if isinstance(model, BERTModel):
        model = TextEmbedder(model, tokenizer=tokenizer)
    if not isinstance(model, TextEmbedder):
        raise ValueError(
            "Vectors of texts need a TextEmbedder or a BERTModel. Received: a "
            f"{type(model).__name__}, which answers another question; use the checkpoint that it "
            "was made from."
        )
    tokenizer = tokenizer or model.tokenizer
    check_vocabulary(model, tokenizer)
    return model, tokenizer


def _vectors(
    model: TextEmbedder, tokenizer: Tokenizer, texts: Sequence[str], batch_size: int, truncate: bool
) -> np.ndarray:
    max_len = model.bert_config.max_len

    def tokenize(start: int, stop: int) -> dict[str, Any]:
        rows = tokenizer(texts[start:stop], max_len=max_len if truncate else None)
        check_lengths(rows["valid_lens"], texts[start:stop], max_len)
        return rows

    vectors = np.zeros((len(texts), model.bert_config.num_hiddens), "float32")
    for number, vector in enumerate(predict_texts(model, tokenize, len(texts), batch_size)):
        vectors[number] = vector
    return vectors


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _best(scores: np.ndarray, top_k: int) -> np.ndarray:
    return np.argsort(-scores, kind="stable")[:top_k]
