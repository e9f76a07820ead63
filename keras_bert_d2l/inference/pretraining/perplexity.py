"""Texts in, how well a model would have guessed each of their tokens out.

B rows in a batch, T tokens, V vocabulary.
"""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, overload

import numpy as np

from keras_bert_d2l.checkpoints.checks import check_bert, check_vocabulary
from keras_bert_d2l.inference.batching import (
    check_batch_size,
    check_lengths,
    length_batches,
    padded_length,
    predict_batch,
)
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Perplexity:
    """How surprising a text is to a model.

    Attributes:
        perplexity: Among how many equally likely tokens the model guesses, on average.
        num_tokens: The tokens that were guessed.
    """

    perplexity: float
    num_tokens: int


@overload
def pseudo_perplexity(
    model: BERTModel, tokenizer: Tokenizer, texts: str, batch_size: int = 32
) -> Perplexity: ...
@overload
def pseudo_perplexity(
    model: BERTModel, tokenizer: Tokenizer, texts: list[str], batch_size: int = 32
) -> list[Perplexity]: ...
def pseudo_perplexity(
    model: BERTModel, tokenizer: Tokenizer, texts: str | list[str], batch_size: int = 32
) -> Any:
    """Measures how well a model guesses each token of a text from all others.

    Each token is masked once, in a row of its own: a text of n tokens costs n rows. The result is
    `exp(-mean(log p))` over the tokens. Special tokens are not guessed, save the unknown one.

    Source: Salazar et al. 2020 (Masked Language Model Scoring), section 2.

    Args:
        model: The model.
        tokenizer: Its tokenizer. Perplexities compare under the same vocabulary alone.
        texts: A text, or a list of texts.
        batch_size: Number of rows, of any texts, that pass through the model at once.

    Returns: the text's `Perplexity`; of a list of texts a list of these. `joint_perplexity`
        makes one of them.

    Raises:
        ValueError: A text has no token or is longer than the model's `max_len`, or the vocabulary
            is not of the model's size.

    Example:

    ```python
    pseudo_perplexity(model, tokenizer, "the cat sat on the mat").perplexity
    ```
    """
    check_bert(model)
    check_vocabulary(model, tokenizer)
    check_batch_size(batch_size)
    if isinstance(texts, str):
        return pseudo_perplexity(model, tokenizer, [texts], batch_size)[0]
    if not texts:
        return []
    rows = {name: np.asarray(values) for name, values in tokenizer(texts).items()}
    check_lengths(rows["valid_lens"], texts, model.bert_config.max_len)
    vocab = tokenizer.vocab
    not_guessed = (vocab.pad_id, vocab.cls_id, vocab.sep_id, vocab.mask_id)
    is_guessed = ~np.isin(rows["tokens"], not_guessed)  # (texts, T)
    counts = is_guessed.sum(axis=1)
    if not counts.all():
        raise ValueError(
            f"Each text must have a token to guess. Received: {texts[int(counts.argmin())]!r:.80}."
        )
    sums = _log_probabilities(model, rows, is_guessed, vocab.mask_id, batch_size)
    return [
        Perplexity(math.exp(-total / count), int(count))
        for total, count in zip(sums, counts, strict=True)
    ]


def joint_perplexity(perplexities: Iterable[Perplexity]) -> Perplexity:
    """Returns the perplexity of several texts together, in which each token counts the same.

    Raises:
        ValueError: There is no text.
    """
    parts = list(perplexities)
    num_tokens = sum(one.num_tokens for one in parts)
    if not num_tokens:
        raise ValueError("There must be a text whose tokens were guessed. Received: none.")
    total = sum(one.num_tokens * math.log(one.perplexity) for one in parts)
    return Perplexity(math.exp(total / num_tokens), num_tokens)


def _log_probabilities(
    model: BERTModel,
    rows: dict[str, np.ndarray],
    is_guessed: np.ndarray,
    mask_id: int,
    batch_size: int,
) -> np.ndarray:
    """Returns the sum of the log probabilities of each text's tokens, float64 `(texts,)`."""
    sums = np.zeros(len(is_guessed))
    numbers, positions = np.nonzero(is_guessed)  # one row for each token that is guessed
    lengths = rows["valid_lens"][numbers]
    for chosen in length_batches(lengths, batch_size):
        number, position = numbers[chosen], positions[chosen]
        tokens = rows["tokens"][number, : padded_length(lengths[chosen])]  # (B, T)
        row = np.arange(len(chosen))
        targets = tokens[row, position]
        tokens[row, position] = mask_id
        batch = {
            "tokens": tokens,
            "segments": np.zeros_like(tokens),
            "valid_lens": lengths[chosen],
            "pred_positions": position[:, None].astype("int32"),
        }
        logits = predict_batch(model, batch)["mlm"][:, 0].astype("float32")  # (B, V)
        np.add.at(sums, number, _log_softmax_at(logits, targets))
    return sums


def _log_softmax_at(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Returns the log probability of one class in each row, `(B,)`."""
    logits = logits - logits.max(axis=1, keepdims=True)
    return logits[np.arange(len(targets)), targets] - np.log(np.exp(logits).sum(axis=1))
