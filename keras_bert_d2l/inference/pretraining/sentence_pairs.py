"""Pairs of texts in, how likely the second follows the first out.

B pairs.
"""

from typing import Any, overload

import numpy as np
from keras import ops

from keras_bert_d2l.checkpoints.checks import check_bert, check_vocabulary
from keras_bert_d2l.inference.batching import check_lengths, predict_texts
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer


@overload
def next_sentence_score(
    model: BERTModel, tokenizer: Tokenizer, a: str, b: str, batch_size: int = 32
) -> float: ...
@overload
def next_sentence_score(
    model: BERTModel, tokenizer: Tokenizer, a: list[str], b: list[str], batch_size: int = 32
) -> np.ndarray: ...
def next_sentence_score(
    model: BERTModel,
    tokenizer: Tokenizer,
    a: str | list[str],
    b: str | list[str],
    batch_size: int = 32,
) -> Any:
    """Tells how likely one text follows another, by the head of next-sentence prediction.

    A model that was pretrained on the order of two sentences tells by the same head how likely
    they are in order.

    Source: Devlin et al. 2019, section 3.1, task 2.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        a: The first text, or a list of these.
        b: The second text, or a list of as many.
        batch_size: Number of pairs that pass through the model at once.

    Returns: the probability that `b` follows `a`, column 1 of the head; of lists float32 `(B,)`.

    Raises:
        ValueError: The model has no such head, a pair is longer than the model's `max_len`, there
            is a text without a partner, or the vocabulary is not of the model's size.

    Example:

    ```python
    next_sentence_score(model, tokenizer, "it began to rain", "she opened her umbrella")
    ```
    """
    check_bert(model)
    check_vocabulary(model, tokenizer)
    if model.nsp is None:
        raise ValueError(
            "Whether a text follows another is told by the head of next-sentence prediction. "
            "Received: a model with next_sentence=False, which has none."
        )
    if isinstance(a, str) != isinstance(b, str):
        raise ValueError("`a` and `b` must both be a text, or both a list of texts.")
    if isinstance(a, str) or isinstance(b, str):
        return float(_scores(model, tokenizer, [str(a)], [str(b)], batch_size)[0])
    if len(a) != len(b):
        raise ValueError(f"Each text needs a partner. Received: {len(a)} and {len(b)} texts.")
    return _scores(model, tokenizer, a, b, batch_size)


def _scores(
    model: BERTModel, tokenizer: Tokenizer, a: list[str], b: list[str], batch_size: int
) -> np.ndarray:
    def tokenize(start: int, stop: int) -> dict[str, Any]:
        rows = tokenizer(a[start:stop], b[start:stop])
        check_lengths(rows["valid_lens"], a[start:stop], model.bert_config.max_len)
        return rows

    logits = np.zeros((len(a), 2), "float32")
    for number, outputs in enumerate(predict_texts(model, tokenize, len(a), batch_size)):
        logits[number] = outputs["nsp"]
    return ops.convert_to_numpy(ops.softmax(logits))[:, 1]
