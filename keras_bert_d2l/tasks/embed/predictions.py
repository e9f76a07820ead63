"""`embed` and `similar`: encode texts as vectors, and find the texts most similar to a query.

B: number of texts, D: hidden width, k: maximum number of matches per query.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import keras
import numpy as np

from keras_bert_d2l.checks import check_integer, check_that
from keras_bert_d2l.inference.batching import TextRows, predict_texts
from keras_bert_d2l.inference.prediction import Result, Texts, asked_model, one_per_text, with_graph
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
        score: Cosine similarity to the query, from -1 to 1.
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
        tokenizer: The tokenizer. `None` means `model.tokenizer`.
        batch_size: Texts per batch.
        truncate: Whether to truncate texts that are too long; a warning reports how many. With
            `False`, they raise an error.

    Returns: float32 `(B, D)`; for a single text, `(D,)`.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The model belongs to a different task, the tokenizer is missing or does not
            match the model, a text is too long with `truncate=False`, or `batch_size` is below 1.

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
    vectors = _vectors(embedder, tokenizer, text_list("texts", texts), batch_size, truncate)
    return vectors[0] if isinstance(texts, str) else vectors


@one_per_text(list[Match])
def similar(
    model: keras.Model | PathLike,
    query: str | Texts,
    texts: str | Texts,
    *,
    top_k: int = 5,
    vectors: np.ndarray | None = None,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    truncate: bool = True,
) -> list[Match] | list[list[Match]]:
    """Find the texts most similar to a query, by the cosine similarity of their vectors.

    Args:
        model: The model, as for `embed`.
        query: The text to search for, or a list of such texts.
        texts: The texts to compare with it.
        top_k: Maximum number of matches, k.
        vectors: The vectors of `texts`, float `(N, D)`, as `embed` returned them before; `None`:
            the texts are encoded.
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
    queries = text_list("query", query)
    rows = text_list("texts", texts)

    def encode(some: Sequence[str]) -> np.ndarray:
        return unit(_vectors(embedder, tokenizer, some, batch_size, truncate))

    # Equal texts need equal scores, so each different text is encoded once.
    known = (
        {} if vectors is None else dict(zip(rows, _checked(vectors, rows, embedder), strict=True))
    )
    missing = [text for text in dict.fromkeys([*rows, *queries]) if text not in known]
    known |= dict(zip(missing, encode(missing), strict=True))
    asked, encoded = (np.array([known[text] for text in some]) for some in (queries, rows))
    found = [
        [Match(rows[index], float(score), int(index)) for index, score in best]
        for best in nearest(asked, encoded, top_k)
    ]
    return found[0] if isinstance(query, str) else found


def _checked(vectors: object, rows: Sequence[str], embedder: TextEmbedder) -> np.ndarray:
    shape = (len(rows), embedder.bert_config.num_hiddens)
    array = np.asarray(vectors)
    expected = f"an array of the shape {shape}, one vector per text"
    check_that(array.shape == shape and array.dtype.kind == "f", "vectors", expected, array.shape)
    return unit(array.astype("float32"))


def nearest(
    queries: np.ndarray, vectors: np.ndarray, top_k: int
) -> Iterator[list[tuple[int, float]]]:
    """Yield the rows nearest to each query, by an exact search in blocks.

    Args:
        queries: Unit vectors `(Q, D)`.
        vectors: Unit vectors `(N, D)`.
        top_k: Number of rows per query.

    Yields: indices and cosines, best first; ties keep the order of the rows.
    """
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        some = queries[start : start + _QUERIES_AT_ONCE]
        cosines = np.empty((len(some), len(vectors)), np.float32)
        for row in range(0, len(vectors), _ROWS_AT_ONCE):
            block = vectors[row : row + _ROWS_AT_ONCE]
            cosines[:, row : row + _ROWS_AT_ONCE] = (block @ some.T).T
        if not np.isfinite(cosines).all():
            raise ValueError(
                "The cosines of the texts must be finite numbers. The model's weights or `vectors` "
                "contain NaN or infinity: load another checkpoint, or encode the texts again."
            )
        for scores in cosines:
            least = np.partition(scores, -top_k)[-top_k] if top_k < len(scores) else -np.inf
            likely = np.flatnonzero(scores >= least)
            best = likely[np.argsort(-scores[likely], kind="stable")[:top_k]]
            yield list(zip(best, scores[best], strict=True))


def _embedder(
    model: keras.Model | PathLike, tokenizer: Tokenizer | None
) -> tuple[TextEmbedder, Tokenizer]:
    model, tokenizer = asked_model(model, TextEmbedder, BERTModel, tokenizer=tokenizer)
    if isinstance(model, BERTModel):
        return with_graph(model, TextEmbedder), tokenizer
    return model, tokenizer


def _vectors(
    model: TextEmbedder, tokenizer: Tokenizer, texts: Sequence[str], batch_size: int, truncate: bool
) -> np.ndarray:
    rows = TextRows(model.preprocessing(model, tokenizer), [texts], truncate)
    vectors = np.zeros((len(texts), model.bert_config.num_hiddens), "float32")
    for number, vector in enumerate(predict_texts(model, rows, len(texts), batch_size)):
        vectors[number] = vector
    return vectors


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale the vectors `(B, D)` to length 1."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
