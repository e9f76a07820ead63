"""Encode texts as vectors, and search by them.

B: number of texts, E: width of a vector, k: maximum number of matches per query.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import keras
import numpy as np

from keras_bert_d2l.checkpoints.checks import tokenizer_of
from keras_bert_d2l.checks import check_integer, check_that, shown
from keras_bert_d2l.inference.prediction import (
    Result,
    TextRows,
    Texts,
    asked_model,
    one_per_text,
    predict_texts,
    with_graph,
)
from keras_bert_d2l.layers.pooling import Similarity
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.tasks.embed.model import TextEmbedder
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text_arguments import text_list
from keras_bert_d2l.types import PathLike

_QUERIES_AT_ONCE = 16
_ROWS_AT_ONCE = 2**16


@dataclasses.dataclass(frozen=True, repr=False)
class Match(Result):
    """A text similar to a query.

    Attributes:
        text: The text.
        score: Similarity to the query: by default the cosine, from -1 to 1.
        index: Index of the text in the list, from 0.

    Example:

    ```python
    import keras_bert_d2l as kb

    kb.Match(text="click on forgot password", score=0.61, index=2)
    ```
    """

    text: str
    score: float
    index: int


def embed(
    model: keras.Model | PathLike,
    texts: str | Texts,
    *,
    prompt_name: str | None = None,
    prompt: str | None = None,
    truncate_dim: int | None = None,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    truncate: bool = True,
) -> np.ndarray:
    """Encode texts as vectors that can be compared.

    A `TextEmbedder` uses its own pooling. A `BERTModel` uses the mean of the token vectors,
    normalized to length 1, as `TextEmbedder(model)` does.

    Args:
        model: The model, or the path or the name of its checkpoint, which is loaded at each call
            with the pooling that its folder defines. The vectors are meaningful if the model was
            trained to embed texts, like the checkpoints of Sentence-BERT.
        texts: A text, or several, as for `classify`. Empty texts also have a vector.
        prompt_name: The name of the prompt to put before each text, from `model.prompts`, such as
            `"query"` or `"document"`. `None`: the model's default prompt, if it has one.
        prompt: The text to put before each text, instead of a prompt of the model.
        truncate_dim: Number of first elements of each vector to return, as for models trained with
            the Matryoshka loss; those of vectors of length 1 are not normalized again. `None`: the
            model's own.
        tokenizer: The tokenizer. `None` means `model.tokenizer`.
        batch_size: Texts per batch.
        truncate: Whether to truncate texts that are too long; a warning reports how many. With
            `False`, they raise an error.

    Returns: float32 `(B, E)`, where E is `model.embedding_width`; for a single text, `(E,)`.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The model belongs to a different task, the tokenizer is missing or does not
            match the model, a text is too long with `truncate=False`, there is no such prompt, or
            `batch_size` or `truncate_dim` is out of range.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat".split()))
    model = kb.BERTModel(8, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    vectors = kb.embed(model, ["the cat", "sat"], tokenizer=tokenizer)
    vectors[0] @ vectors[1]  # cosine similarity
    ```
    """
    embedder, tokenizer = _embedder(model, tokenizer)
    if prompt is None:
        prompt = embedder.prompt(prompt_name)
    elif prompt_name is not None:
        raise ValueError(
            "Pass either `prompt` or `prompt_name`. Received: prompt="
            f"{shown(prompt)} and prompt_name={shown(prompt_name)}."
        )
    how = _How(prompt, batch_size, truncate, truncate_dim)
    vectors = _vectors(embedder, tokenizer, text_list("texts", texts), how)
    return vectors[0] if isinstance(texts, str) else vectors


@one_per_text(list[Match])
def similar(
    model: keras.Model | PathLike,
    query: str | Texts,
    texts: str | Texts,
    *,
    top_k: int = 5,
    vectors: np.ndarray | None = None,
    truncate_dim: int | None = None,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    truncate: bool = True,
) -> list[Match] | list[list[Match]]:
    """Find the texts most similar to a query.

    The vectors are compared as the model's `similarity` says, by default by their cosine. The
    query gets the model's prompt for queries, and the texts that for documents.

    Args:
        model: The model, as for `embed`.
        query: The text to search for, or a list of such texts.
        texts: The texts to compare with it.
        top_k: Maximum number of matches, k.
        vectors: The vectors of `texts`, float `(N, E)`, as `embed` with `prompt_name="document"`
            returned them before; `None`: the texts are encoded.
        truncate_dim: As for `embed`.
        tokenizer: As for `embed`.
        batch_size: As for `embed`.
        truncate: As for `embed`.

    Returns: the k best `Match`es, best first; ties keep the order of `texts`. For a list of
        queries, a list of such lists.

    Raises:
        ValueError: As for `embed`, `top_k` is below 1, `vectors` has another shape, or a vector
            contains NaN.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat".split()))
    model = kb.BERTModel(8, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    for match in kb.similar(model, "a cat", ["the cat", "sat"], tokenizer=tokenizer):
        print(match.score, match.text)
    ```
    """
    check_integer("top_k", top_k, 1)
    check_that(not isinstance(texts, str), "texts", "a list of texts", texts)
    embedder, tokenizer = _embedder(model, tokenizer)
    rows = text_list("texts", texts)
    how = _How(embedder.prompt("document"), batch_size, truncate, truncate_dim)
    places = None
    if vectors is None:
        different = _numbers(rows)
        encoded = _vectors(embedder, tokenizer, [*different], how)
        places = np.array([different[text] for text in rows], int)
    else:
        shape, array = (len(rows), how.width(embedder)), np.asarray(vectors)
        is_right = array.shape == shape and array.dtype.kind == "f"
        expected = f"an array of the shape {shape}, one vector per text"
        check_that(is_right, "vectors", expected, array.shape)
        encoded = array.astype("float32")
    how = how._replace(prompt=embedder.prompt("query"))
    asked = _different_vectors(embedder, tokenizer, text_list("query", query), how)
    if embedder.similarity == "cosine":
        asked, encoded = _unit(asked), _unit(encoded)
    found = [
        [Match(rows[index], float(score), int(index)) for index, score in best]
        for best in nearest(asked, encoded, top_k, embedder.similarity, places)
    ]
    return found[0] if isinstance(query, str) else found


def nearest(
    queries: np.ndarray,
    vectors: np.ndarray,
    top_k: int,
    similarity: Similarity = "cosine",
    places: np.ndarray | None = None,
) -> Iterator[list[tuple[int, float]]]:
    """Yield the texts nearest to each query, by an exact search in blocks.

    Args:
        queries: Vectors `(Q, E)`, of length 1 for cosines.
        vectors: Vectors `(N, E)`, of length 1 for cosines.
        top_k: Number of texts per query.
        similarity: As for `TextEmbedder`.
        places: The row of `vectors` of each text. Equal texts share one, because the rounding of a
            matrix product may depend on the row. `None`: each text has its own.

    Yields: the numbers of texts and their scores, best first; ties keep the order of the texts.
    """
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        some = queries[start : start + _QUERIES_AT_ONCE]
        found = np.empty((len(some), len(vectors)), np.float32)
        for row in range(0, len(vectors), _ROWS_AT_ONCE):
            block = vectors[row : row + _ROWS_AT_ONCE]
            found[:, row : row + _ROWS_AT_ONCE] = _scores(some, block, similarity)
        if not np.isfinite(found).all():
            raise ValueError(
                "The scores of the texts must be finite numbers. The model's weights or `vectors` "
                "contain NaN or infinity: load another checkpoint, or encode the texts again."
            )
        for of_rows in found:
            scores = of_rows if places is None else of_rows[places]
            least = np.partition(scores, -top_k)[-top_k] if top_k < len(scores) else -np.inf
            likely = np.flatnonzero(scores >= least)
            best = likely[np.argsort(-scores[likely], kind="stable")[:top_k]]
            yield list(zip(best, scores[best], strict=True))


def _scores(queries: np.ndarray, vectors: np.ndarray, similarity: Similarity) -> np.ndarray:
    """Return the scores `(Q, N)` of vectors, as sentence-transformers defines them."""
    if similarity in ("cosine", "dot"):
        return (vectors @ queries.T).T
    order = 1 if similarity == "manhattan" else 2
    return -np.stack([np.linalg.norm(vectors - query, order, axis=1) for query in queries])


class _How(NamedTuple):
    """How texts become vectors."""

    prompt: str
    batch_size: int = 32
    truncate: bool = True
    truncate_dim: int | None = None

    def width(self, model: TextEmbedder) -> int:
        """Return the width of the vectors; raise `ValueError` if there are not as many elements."""
        if self.truncate_dim is None:
            return model.embedding_width
        most = model.head.width(model.bert_config.num_hiddens)
        is_right = check_integer("truncate_dim", self.truncate_dim, 1) <= most
        expected = f"at most {most}, the width of the model's vectors"
        check_that(is_right, "truncate_dim", expected, self.truncate_dim)
        return self.truncate_dim


def _embedder(
    model: keras.Model | PathLike, tokenizer: Tokenizer | None
) -> tuple[TextEmbedder, Tokenizer]:
    model, tokenizer = asked_model(model, TextEmbedder, BERTModel, tokenizer=tokenizer)
    if isinstance(model, BERTModel):
        return with_graph(model, TextEmbedder), tokenizer
    return model, tokenizer


def _vectors(
    model: TextEmbedder, tokenizer: Tokenizer, texts: Sequence[str], how: _How
) -> np.ndarray:
    """Return the vectors of texts, float32 `(B, E)`."""
    preprocess = model.preprocessing(model, tokenizer)
    rows = TextRows(preprocess, [texts], how.truncate, {"prompt": how.prompt})
    vectors = np.zeros((len(texts), how.width(model)), "float32")
    for number, vector in enumerate(predict_texts(model, rows, len(texts), how.batch_size)):
        vectors[number] = vector[: vectors.shape[1]]
    return vectors


def _different_vectors(
    model: TextEmbedder, tokenizer: Tokenizer, texts: Sequence[str], how: _How
) -> np.ndarray:
    """Return the vectors of texts. Equal texts are encoded once."""
    different = _numbers(texts)
    vectors = _vectors(model, tokenizer, [*different], how)
    return vectors[[different[text] for text in texts]]


def _numbers(texts: Sequence[str]) -> dict[str, int]:
    """Return a number for each different text."""
    return {text: number for number, text in enumerate(dict.fromkeys(texts))}


def unit_sides(
    model: TextEmbedder, queries: Sequence[str], documents: Sequence[str], batch_size: int
) -> list[np.ndarray]:
    """Return the vectors of queries and of documents, each with its prompt, of length 1."""
    tokenizer = tokenizer_of(model)
    return [
        _unit(_different_vectors(model, tokenizer, texts, _How(model.prompt(name), batch_size)))
        for name, texts in (("query", queries), ("document", documents))
    ]


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Scale the vectors `(B, D)` to length 1."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
