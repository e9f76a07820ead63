"""Texts with masks in, the most likely tokens in their place out.

B texts in the batch, T tokens, P (most) masks in a text, V vocabulary, k predictions for a mask.
"""

import dataclasses
from typing import Any, overload

import numpy as np
from keras import ops

from keras_bert_d2l.checkpoints.checks import check_bert, check_vocabulary
from keras_bert_d2l.inference.batching import check_batch_size, check_lengths
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Prediction:
    """One token that may stand in the place of a mask.

    Attributes:
        token: The token as the vocabulary spells it: a word, or `##` and a piece of one.
        id: Its id.
        score: Its probability among all V tokens, the special ones included.
    """

    token: str
    id: int
    score: float


@overload
def fill_mask(
    model: BERTModel, tokenizer: Tokenizer, texts: str, top_k: int = 5, *, batch_size: int = 32
) -> list[list[Prediction]]: ...
@overload
def fill_mask(
    model: BERTModel,
    tokenizer: Tokenizer,
    texts: list[str],
    top_k: int = 5,
    *,
    batch_size: int = 32,
) -> list[list[list[Prediction]]]: ...
def fill_mask(
    model: BERTModel,
    tokenizer: Tokenizer,
    texts: str | list[str],
    top_k: int = 5,
    *,
    batch_size: int = 32,
) -> list[Any]:
    """Predicts the tokens that are hidden behind the masks of texts.

    The mask is written as the vocabulary spells it, `[MASK]` or (the book's) `<mask>`, and a text
    may have several; each is predicted on its own, from the text with all of them.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        texts: A text, or a list of texts.
        top_k: Number of predictions for each mask, k.
        batch_size: Number of texts that pass through the model at once.

    Returns: for one text a list with an entry for each mask, in the order of the text, which is
        the list of its k `Prediction`s, the likeliest first; for a list of texts the list of
        these.

    Raises:
        ValueError: A text has no mask or is longer than the model's `max_len`, the vocabulary is
            not of the model's size, or `top_k` or `batch_size` is out of range.

    Example:

    ```python
    for prediction in fill_mask(model, tokenizer, "paris is the [MASK] of france")[0]:
        print(prediction.token, prediction.score)
    ```
    """
    check_bert(model)
    check_vocabulary(model, tokenizer)
    check_top_k(top_k, len(tokenizer.vocab))
    check_batch_size(batch_size)
    if isinstance(texts, str):
        return fill_mask(model, tokenizer, [texts], top_k)[0]
    answers: list[Any] = []
    for start in range(0, len(texts), batch_size):
        answers += _fill_batch(model, tokenizer, texts[start : start + batch_size], top_k)
    return answers


def top_predictions(mlm_logits: Any, top_k: int) -> tuple[Any, Any]:
    """Returns the likeliest tokens at each position.

    Args:
        mlm_logits: `(B, P, V)`, in any float dtype.
        top_k: k.

    Returns: probabilities, float32 `(B, P, k)`, the largest first, and their ids, int32.
    """
    scores, ids = ops.top_k(ops.softmax(ops.cast(mlm_logits, "float32")), top_k)
    return scores, ops.cast(ids, "int32")


def check_top_k(top_k: int, vocab_size: int) -> None:
    """Refuses a number of predictions that the vocabulary cannot give."""
    if not 1 <= top_k <= vocab_size:
        raise ValueError(
            f"`top_k` must be from 1 to the size of the vocabulary, {vocab_size}. "
            f"Received: top_k={top_k!r}."
        )


def _fill_batch(
    model: BERTModel, tokenizer: Tokenizer, texts: list[str], top_k: int
) -> list[list[list[Prediction]]]:
    batch = {name: tensor.numpy() for name, tensor in tokenizer(texts).items()}
    check_lengths(batch["valid_lens"], texts, model.bert_config.max_len)
    is_mask = batch["tokens"] == tokenizer.vocab.mask_id
    num_masks = is_mask.sum(axis=1)  # (B,)
    if not num_masks.all():
        mask = tokenizer.vocab.to_tokens(tokenizer.vocab.mask_id)
        text = texts[int(num_masks.argmin())]
        raise ValueError(f"Each text must have a mask, written {mask}. Received: {text!r:.80}.")
    # A stable sort by "is no mask" brings the positions of the masks, ascending, to the front.
    positions = np.argsort(~is_mask, axis=1, kind="stable")[:, : num_masks.max()]
    _, mlm_logits, _ = model(**batch, pred_positions=positions.astype("int32"), training=False)
    all_scores, all_ids = map(ops.convert_to_numpy, top_predictions(mlm_logits, top_k))
    return [
        [
            [
                Prediction(tokenizer.vocab.to_tokens(int(one)), int(one), float(score))
                for one, score in zip(ids, scores, strict=True)
            ]
            for ids, scores in zip(all_ids[row, :count], all_scores[row, :count], strict=True)
        ]
        for row, count in enumerate(num_masks)
    ]
