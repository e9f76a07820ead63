"""Features: the hidden states of chosen layers for texts."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bert_d2l.checks import check_integer, shown
from keras_bert_d2l.inference.prediction import TextRows, asked_model, predict_texts, with_graph
from keras_bert_d2l.layers.kernels.attention import valid_lens_mask
from keras_bert_d2l.layers.pooling import Pooling, PoolingKind
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.models.text_inputs import Preprocessor
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text_arguments import text_list
from keras_bert_d2l.types import PathLike, Tensor

_BATCHES_IN_MEMORY = 8  # sorted by length together


@dataclasses.dataclass(frozen=True)
class Features:
    """The vectors of one text.

    Attributes:
        text: The text.
        tokens: Its T tokens, including special tokens, as spelled in the vocabulary.
        vectors: float32 `(L, T, D)`, or `(L, D)` with pooling.

    Example:

    ```python
    import keras_bert_d2l as kb
    import numpy as np

    kb.Features("a film", ("[CLS]", "a", "film", "[SEP]"), np.zeros((1, 4, 128), "float32"))
    ```
    """

    text: str
    tokens: tuple[str, ...]
    vectors: np.ndarray

    def __repr__(self) -> str:
        return f"Features({shown(self.text)}, vectors of shape {self.vectors.shape})"


def extract_features(
    model: keras.Model | PathLike,
    texts: Iterable[str],
    *,
    layers: Sequence[int] = (-1,),
    pooling: PoolingKind | None = None,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    truncate: bool = True,
) -> Iterator[Features]:
    """Yield the vectors of chosen layers for each text.

    The texts are read and the vectors computed a few batches at a time, so memory does not grow
    with the number of texts.

    Source: Devlin et al. 2019, section 5.3; google-research/bert, `extract_features.py`.

    Args:
        model: The model, also a fine-tuned one, or the path or the name of its checkpoint, which
            is loaded at each call.
        texts: The texts: a list, or any iterable, such as the lines of an open file.
        layers: The layers, L. 0 is the output of the embeddings, 1 of the first block, and -1 of
            the encoder.
        pooling: `"cls"`, `"mean"` or `"max"`, for one vector per text and layer. `None`: one per
            token.
        tokenizer: The tokenizer. `None` means `model.tokenizer`.
        batch_size: Texts per batch, B.
        truncate: As for `classify`. The warning comes after the last text.

    Yields: the `Features` of each text, in the order of the texts.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: A layer or `pooling` is unknown, a text is not a string or is too long, or the
            tokenizer is missing or does not match the model.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat".split()))
    model = kb.BERTModel(8, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    for found in kb.extract_features(model, ["the cat", "sat"], layers=[0, 1], tokenizer=tokenizer):
        print(found.tokens, found.vectors.shape)  # (2, 4, 16) for "the cat"
    ```
    """
    kinds: tuple[Any, ...] = (BERTModel, TaskModel)  # their base class is abstract
    model, tokenizer = asked_model(model, *kinds, tokenizer=tokenizer)
    check_integer("batch_size", batch_size, 1)
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise ValueError(f"`texts` must be an iterable of texts. Received: {shown(texts)}.")
    if hasattr(texts, "__len__"):
        texts = text_list("texts", texts)
    numbers = _layer_numbers(layers, model.bert_config.num_blks)
    extractor = with_graph(model, _LayerVectors, numbers, pooling)
    rows = TextRows(Preprocessor(model, tokenizer, model.bert_config.max_len), [], truncate)
    return _extracted(extractor, iter(texts), tokenizer, batch_size, rows)


def _extracted(
    extractor: "_LayerVectors",
    texts: Iterator[str],
    tokenizer: Tokenizer,
    batch_size: int,
    text_rows: TextRows,
) -> Iterator[Features]:
    num_texts = 0
    while some := list(itertools.islice(texts, batch_size * _BATCHES_IN_MEMORY)):
        some = text_list("texts", some, first=num_texts)
        rows = {name: np.asarray(x) for name, x in text_rows.of(num_texts, some).items()}
        num_texts += len(some)

        def tokenize(start: int, stop: int, rows: Mapping[str, Tensor] = rows) -> dict[str, Tensor]:
            return {name: values[start:stop] for name, values in rows.items()}

        found = predict_texts(extractor, tokenize, len(some), batch_size)
        lens = rows["valid_lens"].tolist()
        for text, ids, count, vectors in zip(some, rows["tokens"], lens, found, strict=True):
            tokens = tuple(tokenizer.vocab.to_tokens(ids[:count].tolist()))
            yield Features(text, tokens, vectors[:, :count] if vectors.ndim == 3 else vectors)
    text_rows.warn()


class _LayerVectors(keras.Model):
    """A model whose output is the vectors of the chosen layers, `(B, L, T, D)` or `(B, L, D)`."""

    def __init__(
        self, model: BERTModel | TaskModel, layers: list[int], pooling: PoolingKind | None
    ) -> None:
        super().__init__(autocast=False, name="layer_vectors")
        self.encoder = model.encoder
        self.layer_numbers = layers
        self.pooling = pooling and Pooling(pooling, normalize=False, dtype="float32")

    def call(self, batch: Mapping[str, Tensor]) -> Tensor:
        outputs = self.encoder(**batch, return_hidden_states=True)
        states = [*outputs["hidden_states"][:-1], outputs["encoded"]]
        chosen = [ops.cast(states[number], "float32") for number in self.layer_numbers]
        if self.pooling is not None:
            mask = valid_lens_mask(batch["valid_lens"], ops.shape(batch["tokens"])[1])
            chosen = [self.pooling(X, mask[:, 0]) for X in chosen]
        return ops.stack(chosen, axis=1)


def _layer_numbers(layers: Sequence[int], num_blks: int) -> list[int]:
    """Return the indices of layers among the hidden states, or raise `ValueError`."""
    possible = range(-num_blks - 1, num_blks + 1)
    is_list = isinstance(layers, list | tuple | range)
    if not is_list or not layers or any(layer not in possible for layer in layers):
        raise ValueError(
            f"`layers` must be a list of numbers from {possible[0]} to {num_blks}: 0 is the output "
            f"of the embeddings, {num_blks} or -1 that of the encoder. Received: {shown(layers)}."
        )
    return [int(layer) % (num_blks + 1) for layer in layers]
