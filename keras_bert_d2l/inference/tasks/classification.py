"""`classify` and `regress`: predict labels and scores of texts.

B: number of texts, T: tokens per row, C: number of labels.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Unpack, overload

import numpy as np

from keras_bert_d2l.checks import check_integer
from keras_bert_d2l.inference.asked_model import AskOptions, asked_model
from keras_bert_d2l.inference.batching import predict_texts, text_list, text_pairs
from keras_bert_d2l.inference.results import Result, ResultList
from keras_bert_d2l.models.tasks import (
    SequenceClassifier,
    SequenceRegressor,
)
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.types import PathLike, Tensor

# Not `Sequence[str]`, because a single string would also match.
Texts = list[str] | tuple[str, ...]


class RowOptions(AskOptions, total=False):
    """Keyword arguments of `classify`, `regress` and `tag`."""

    max_len: int | None


@dataclasses.dataclass(frozen=True, repr=False)
class Classification(Result):
    """The predicted label, or labels, of a text.

    Attributes:
        label: The most likely label.
        score: The probability of this label.
        scores: The probability of every label. They need not add up to 1 if a text can have any
            number of labels.
        labels: The labels of the text: the most likely one or, if a text can have any number of
            labels, all labels with a probability of at least 0.5.

    Example:

    ```python
    import keras_bert_d2l as kb

    kb.Classification("good", 0.9, {"bad": 0.1, "good": 0.9}, labels=("good",))
    ```
    """

    label: str
    score: float
    scores: dict[str, float]
    labels: tuple[str, ...]


@dataclasses.dataclass(frozen=True, repr=False)
class Regression(Result):
    """The predicted score, or scores, of a text.

    Attributes:
        score: The score, or the first one if there are several.
        scores: All scores by name.

    Example:

    ```python
    import keras_bert_d2l as kb

    kb.Regression(score=3.8, scores={"similarity": 3.8})
    ```
    """

    score: float
    scores: dict[str, float]


@overload
def classify(
    model: SequenceClassifier | PathLike,
    texts: str,
    texts_b: str | None = None,
    **options: Unpack[RowOptions],
) -> Classification: ...
@overload
def classify(
    model: SequenceClassifier | PathLike,
    texts: Texts,
    texts_b: Texts | None = None,
    **options: Unpack[RowOptions],
) -> list[Classification]: ...
def classify(
    model: SequenceClassifier | PathLike,
    texts: str | Texts,
    texts_b: str | Texts | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    max_len: int | None = None,
) -> Classification | list[Classification]:
    """Predict the label, or labels, of texts or pairs of texts.

    As in training, texts that are too long are truncated at the end. In a pair, the longer text
    is truncated first.

    Args:
        model: The classifier, or the path or the name of its checkpoint, which is loaded at each
            call.
        texts: A text, or a list of texts.
        texts_b: The second text of each pair. `None` means single texts.
        tokenizer: The tokenizer. `None` means `model.tokenizer`.
        batch_size: Texts per batch.
        max_len: Maximum number of tokens in a row, T. `None` means the model's maximum.

    Returns: one `Classification` per text, in the order of the texts; for a single text, only its
        `Classification`.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The model belongs to a different task or has no tokenizer, `texts` and `texts_b`
            differ in length, or a number is out of range.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] what a film bore".split()))
    bert = kb.BERTModel(9, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    classifier = kb.SequenceClassifier(bert, ["bad", "good"], tokenizer=tokenizer)
    for found in kb.classify(classifier, ["what a film", "a bore"]):
        print(found.label, found.score)
    ```
    """
    model, tokenizer = asked_model(model, SequenceClassifier, tokenizer=tokenizer)
    activate = sigmoid if model.multi_label else softmax
    found: list[Classification] = ResultList()
    for logits in text_outputs(model, tokenizer, texts, texts_b, batch_size, max_len):
        scores = dict(zip(model.labels, activate(logits).tolist(), strict=True))
        label = model.labels[int(np.argmax(logits))]
        labels: tuple[str, ...] = (label,)
        if model.multi_label:
            labels = tuple(name for name, score in scores.items() if score >= 0.5)
        found.append(Classification(label, scores[label], scores, labels))
    return found[0] if isinstance(texts, str) else found


@overload
def regress(
    model: SequenceRegressor | PathLike,
    texts: str,
    texts_b: str | None = None,
    **options: Unpack[RowOptions],
) -> Regression: ...
@overload
def regress(
    model: SequenceRegressor | PathLike,
    texts: Texts,
    texts_b: Texts | None = None,
    **options: Unpack[RowOptions],
) -> list[Regression]: ...
def regress(
    model: SequenceRegressor | PathLike,
    texts: str | Texts,
    texts_b: str | Texts | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    max_len: int | None = None,
) -> Regression | list[Regression]:
    """Predict the scores of texts or pairs of texts.

    Args:
        model: The regressor, or the path or the name of its checkpoint, which is loaded at each
            call.
        texts: As for `classify`.
        texts_b: As for `classify`.
        tokenizer: As for `classify`.
        batch_size: As for `classify`.
        max_len: As for `classify`.

    Returns: one `Regression` per text, in the order of the texts; for a single text, only its
        `Regression`.

    Raises:
        FileNotFoundError, ValueError: As for `classify`.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a cat sat".split()))
    bert = kb.BERTModel(8, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    regressor = kb.SequenceRegressor(bert, tokenizer=tokenizer)
    kb.regress(regressor, "a cat", "a cat sat").score
    ```
    """
    model, tokenizer = asked_model(model, SequenceRegressor, tokenizer=tokenizer)
    found: list[Regression] = ResultList()
    for outputs in text_outputs(model, tokenizer, texts, texts_b, batch_size, max_len):
        scores = dict(zip(model.labels, outputs.astype("float64").tolist(), strict=True))
        found.append(Regression(scores[model.labels[0]], scores))
    return found[0] if isinstance(texts, str) else found


def checked_max_len(max_len: int | None, at_least: int, most: int) -> int:
    """Return the maximum number of tokens in a row, for `None` that of the model, `most`.

    Raises:
        ValueError: `max_len` is below `at_least` or exceeds the model's maximum.
    """
    if max_len is None:
        return most
    check_integer("max_len", max_len, 1)
    if not at_least <= max_len <= most:
        raise ValueError(
            f"`max_len` must be from {at_least} to {most}, the model's maximum. "
            f"Received: max_len={max_len!r}."
        )
    return max_len


def softmax(logits: np.ndarray) -> np.ndarray:
    """Convert logits `(..., C)` to probabilities in float64."""
    logits = logits.astype("float64")
    exponents = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponents / exponents.sum(axis=-1, keepdims=True)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Convert logits of independent binary decisions to probabilities in float64."""
    return 0.5 + 0.5 * np.tanh(0.5 * logits.astype("float64"))


def text_outputs(
    model: TaskModel,
    tokenizer: Tokenizer,
    texts: str | Texts,
    texts_b: str | Texts | None,
    batch_size: int,
    max_len: int | None,
) -> Iterator[np.ndarray]:
    """Yield the outputs `(C,)` of each text."""
    first = text_list("texts", texts)
    second = None if texts_b is None else text_pairs(("texts", "texts_b"), texts, texts_b)[1]
    at_least, most = (3, model.max_row_len) if second is None else (5, model.bert_config.max_len)
    limit = checked_max_len(max_len, at_least, most)

    def tokenize(start: int, stop: int) -> Mapping[str, Tensor]:
        some_b = None if second is None else second[start:stop]
        return tokenizer(first[start:stop], some_b, max_len=limit)

    return predict_texts(model, tokenize, len(first), batch_size)
