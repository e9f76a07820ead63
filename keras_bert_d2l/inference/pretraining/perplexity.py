"""`pseudo_perplexity`: measure how well a model predicts each token of a text from the others."""

import dataclasses
import math
import sys
from collections.abc import Iterable
from typing import Unpack, overload

from keras_bert_d2l.checkpoints.checks import check_head
from keras_bert_d2l.checks import check_integer
from keras_bert_d2l.inference.asked_model import AskOptions, asked_model
from keras_bert_d2l.inference.batching import text_list
from keras_bert_d2l.inference.pretraining.log_likelihoods import pseudo_log_likelihoods
from keras_bert_d2l.inference.results import Result, ResultList
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.types import PathLike


@dataclasses.dataclass(frozen=True, repr=False)
class Perplexity(Result):
    """The perplexity of a text: how surprising it is for a model.

    Attributes:
        perplexity: The average number of equally likely tokens that the model has to choose from.
        num_tokens: Number of predicted tokens.

    Example:

    ```python
    import keras_bert_d2l as kb

    kb.Perplexity(perplexity=12.5, num_tokens=7)
    ```
    """

    perplexity: float
    num_tokens: int


@overload
def pseudo_perplexity(
    model: BERTModel | PathLike, texts: str, **options: Unpack[AskOptions]
) -> Perplexity: ...
@overload
def pseudo_perplexity(
    model: BERTModel | PathLike, texts: list[str], **options: Unpack[AskOptions]
) -> list[Perplexity]: ...
def pseudo_perplexity(
    model: BERTModel | PathLike,
    texts: str | list[str],
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
) -> Perplexity | list[Perplexity]:
    """Measure how well a model predicts each token of a text from all other tokens.

    Each token is masked once, in its own row, so a text of n tokens costs n rows. The result is
    `exp(-mean(log p))` over the tokens. Special tokens are not predicted, except the unknown token.

    Source: Salazar et al. 2020 (Masked Language Model Scoring), section 2.

    Args:
        model: The model, or the path or the name of its checkpoint, which is loaded at each call.
        texts: A text, or a list of texts.
        tokenizer: The tokenizer. `None` means `model.tokenizer`. Perplexities are comparable only
            for the same vocabulary.
        batch_size: Rows per batch. A batch may contain rows from several texts.

    Returns: the `Perplexity` of the text; for a list of texts, a list. `joint_perplexity` combines
        such a list.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The model's checkpoint lacked the MLM head, a text has no token to predict or is
            longer than the model's `max_len`, or the vocabulary does not have the model's size.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat".split()))
    model = kb.BERTModel(8, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    model.tokenizer = tokenizer
    kb.pseudo_perplexity(model, "the cat sat").perplexity  # about 8: it is untrained
    ```
    """
    model, tokenizer = asked_model(model, BERTModel, tokenizer=tokenizer)
    check_head(model, "mlm")
    check_integer("batch_size", batch_size, 1)
    asked = text_list("texts", texts)
    if not asked:
        return ResultList()
    sums, counts = pseudo_log_likelihoods(model, tokenizer, asked, batch_size=batch_size)
    found = ResultList(
        Perplexity(_exp(-total / count), int(count))
        for total, count in zip(sums, counts, strict=True)
    )
    return found[0] if isinstance(texts, str) else found


def joint_perplexity(perplexities: Iterable[Perplexity]) -> Perplexity:
    """Combine the perplexities of several texts into one, weighting all tokens equally.

    Raises:
        ValueError: There are no texts.
    """
    parts = list(perplexities)
    num_tokens = sum(one.num_tokens for one in parts)
    if not num_tokens:
        raise ValueError("There must be at least one text with predicted tokens. Received: none.")
    total = sum(one.num_tokens * math.log(one.perplexity) for one in parts)
    return Perplexity(_exp(total / num_tokens), num_tokens)


def _exp(x: float) -> float:
    """Return e^x, or infinity if that is too large for a float."""
    return math.exp(x) if x < math.log(sys.float_info.max) else math.inf
