"""Encode texts as sparse vectors: a weight for each token of the vocabulary (SPLADE)."""

import dataclasses

import keras
import numpy as np

from keras_bert_d2l.checkpoints.checks import check_head
from keras_bert_d2l.checks import check_integer
from keras_bert_d2l.inference.heads import check_top_k
from keras_bert_d2l.inference.prediction import (
    BATCHES_SORTED,
    Result,
    TextRows,
    Texts,
    asked_model,
    one_per_text,
    predict_rows,
    with_graph,
)
from keras_bert_d2l.layers.sparse import SparsePooling
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.text_inputs import Preprocessor
from keras_bert_d2l.progress import parts
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text_arguments import text_list
from keras_bert_d2l.types import PathLike, Tensor


@dataclasses.dataclass(frozen=True, repr=False)
class SparseVector(Result):
    """The nonzero values of a vector with one dimension per token of the vocabulary.

    Qdrant takes `indices` and `values`; Elasticsearch's `sparse_vector` takes `weights`.

    Attributes:
        indices: The ids of the tokens, in ascending order.
        values: Their weights, all above 0.
        tokens: The tokens, as in the vocabulary.

    Example:

    ```python
    import keras_bert_d2l as kb

    query = kb.SparseVector([5, 9], [0.5, 2.0], ["cat", "sat"])
    text = kb.SparseVector([7, 9], [1.0, 1.5], ["dog", "sat"])
    assert query.dot(text) == 3.0
    assert query.weights == {"cat": 0.5, "sat": 2.0}
    ```
    """

    indices: list[int]
    values: list[float]
    tokens: list[str]

    @property
    def weights(self) -> dict[str, float]:
        """The weights by token."""
        return dict(zip(self.tokens, self.values, strict=True))

    def dot(self, other: "SparseVector") -> float:
        """Return the dot product with a vector of the same model, the score of a search."""
        mine = dict(zip(self.indices, self.values, strict=True))
        pairs = zip(other.indices, other.values, strict=True)
        return float(sum(mine.get(index, 0.0) * value for index, value in pairs))


@one_per_text(SparseVector)
def embed_sparse(
    model: keras.Model | PathLike,
    texts: str | Texts,
    *,
    top_k: int | None = None,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    truncate: bool = True,
) -> SparseVector | list[SparseVector]:
    """Encode texts as sparse vectors, as `SparseEncoder.encode` of sentence-transformers does.

    The weight of a token is the maximum over the positions of the text of `log(1 + relu(logit))`,
    where the logits are those of the MLM head. `model.sparse` is the pooling, which may differ; see
    `SparsePooling`. Folders with prompts are refused.

    Source: Formal et al. 2021 (SPLADE v2).

    Args:
        model: The model, a `BERTModel` with an MLM head, or the path or the name of its
            checkpoint, which is loaded at each call. The vectors are sparse and meaningful if the
            model was trained for this, like the checkpoints of SPLADE.
        texts: A text, or several, as for `classify`.
        top_k: Keep only the k largest values of each vector. `None`: as `model.sparse` says, by
            default all.
        tokenizer: The tokenizer. `None` means `model.tokenizer`.
        batch_size: Texts per batch.
        truncate: As for `classify`.

    Returns: the `SparseVector` of a text; for a list of texts, a list of them.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The model has no trained MLM head, a text is too long with `truncate=False`,
            the vocabulary does not have the model's size, or `top_k` or `batch_size` is out of
            range.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat".split()))
    model = kb.BERTModel(8, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    query, text = kb.embed_sparse(model, ["a cat", "the cat sat"], tokenizer=tokenizer)
    print(text.weights, query.dot(text))
    ```
    """
    model, tokenizer = asked_model(model, BERTModel, tokenizer=tokenizer)
    check_head(model, "mlm")
    if top_k is not None:
        check_top_k(top_k, len(tokenizer.vocab))
    check_integer("batch_size", batch_size, 1)
    most = model.sparse.top_k if top_k is None else top_k
    found = text_list("texts", texts)
    rows = TextRows(Preprocessor(model, tokenizer, model.sparse.max_len), [found], truncate)
    encoder = with_graph(model, _SparseEncoder, model.sparse)
    vectors: list[SparseVector] = [SparseVector([], [], [])] * len(found)
    for part in parts("Predicting", len(found), batch_size * BATCHES_SORTED):
        for numbers, weights in predict_rows(encoder, rows(part.start, part.stop), batch_size):
            for number, row in zip(numbers, weights, strict=True):
                vectors[part.start + number] = _vector(row, most, tokenizer)
    return vectors[0] if isinstance(texts, str) else vectors


def _vector(weights: np.ndarray, top_k: int | None, tokenizer: Tokenizer) -> SparseVector:
    """Return the nonzero values of a vector `(V,)`, at most the k largest."""
    indices = np.flatnonzero(weights)
    if top_k is not None and len(indices) > top_k:
        largest = np.argsort(-weights[indices], kind="stable")[:top_k]
        indices = np.sort(indices[largest])
    tokens = [tokenizer.vocab.to_tokens(int(index)) for index in indices]
    return SparseVector(indices.tolist(), weights[indices].tolist(), tokens)


class _SparseEncoder(keras.Model):
    """A `BERTModel` that returns the weight of every token of the vocabulary, `(B, V)`."""

    def __init__(self, bert: BERTModel, sparse: SparsePooling) -> None:
        super().__init__(dtype=bert.dtype_policy, name="sparse_encoder")
        self.bert = bert

    def call(self, batch: dict[str, Tensor]) -> Tensor:
        return self.bert.sparse_weights(self.bert.encoder(**batch, training=False), **batch)
