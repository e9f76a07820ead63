"""What the functions share that ask a task model about texts.

B: number of texts, T: tokens per row, C: number of outputs.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from keras_bert_d2l.checks import check_integer, check_that
from keras_bert_d2l.inference.asked_model import AskOptions
from keras_bert_d2l.inference.batching import predict_texts, text_list, text_pairs
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.types import Tensor

# Not `Sequence[str]`, because a single string would also match.
Texts = list[str] | tuple[str, ...]


class RowOptions(AskOptions, total=False):
    """Keyword arguments of `classify`, `regress` and `tag`."""

    max_len: int | None


def checked_max_len(max_len: int | None, at_least: int, most: int) -> int:
    """Return the maximum number of tokens in a row, for `None` that of the model, `most`.

    Raises:
        ValueError: `max_len` is below `at_least` or exceeds the model's maximum.
    """
    if max_len is None:
        return most
    check_integer("max_len", max_len, 1)
    check_that(
        at_least <= max_len <= most,
        "max_len",
        f"from {at_least} to {most}, the model's maximum",
        max_len,
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
