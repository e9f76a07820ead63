"""`next_sentence_score`: predict the probability that one text follows another.

B: number of pairs.
"""

from typing import Unpack, overload

import numpy as np
from keras import ops

from keras_bert_d2l.checkpoints.checks import check_head
from keras_bert_d2l.inference.asking import AskOptions, asked_model
from keras_bert_d2l.inference.batching import check_lengths, predict_texts, text_pairs
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.types import PathLike, Tensor


@overload
def next_sentence_score(
    model: BERTModel | PathLike, a: str, b: str, **options: Unpack[AskOptions]
) -> float: ...
@overload
def next_sentence_score(
    model: BERTModel | PathLike, a: list[str], b: list[str], **options: Unpack[AskOptions]
) -> np.ndarray: ...
def next_sentence_score(
    model: BERTModel | PathLike,
    a: str | list[str],
    b: str | list[str],
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
) -> float | np.ndarray:
    """Return the probability that one text follows another, from the next-sentence head.

    For a model pretrained on sentence order, the same head gives the probability that the two
    sentences are in the right order.

    Source: Devlin et al. 2019, section 3.1, task 2.

    Args:
        model: The model, or the path or the name of its checkpoint, which is loaded at each call.
        a: The first text, or a list of first texts.
        b: The second text, or a list of the same length.
        tokenizer: The tokenizer. `None` means `model.tokenizer`.
        batch_size: Pairs per batch.

    Returns: the probability that `b` follows `a`, column 1 of the head; for lists, float32 `(B,)`.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The model or its checkpoint has no next-sentence head, a pair is longer than the
            model's `max_len`, the lists differ in length, or the vocabulary does not have the
            model's size.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] it rained she slept".split()))
    model = kb.BERTModel(9, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    kb.next_sentence_score(model, "it rained", "she slept", tokenizer=tokenizer)
    ```
    """
    model, tokenizer = asked_model(model, BERTModel, tokenizer=tokenizer)
    check_head(model, "nsp")
    firsts, seconds = text_pairs(("a", "b"), a, b)
    pairs = [f"{first} | {second}" for first, second in zip(firsts, seconds, strict=True)]

    def tokenize(start: int, stop: int) -> dict[str, Tensor]:
        rows = tokenizer(firsts[start:stop], seconds[start:stop])
        check_lengths(rows["valid_lens"], pairs[start:stop], model.bert_config.max_len)
        return rows

    logits = np.zeros((len(firsts), 2), "float32")
    for number, outputs in enumerate(predict_texts(model, tokenize, len(firsts), batch_size)):
        logits[number] = outputs["nsp"]
    scores = ops.convert_to_numpy(ops.softmax(logits))[:, 1]
    return float(scores[0]) if isinstance(a, str) else scores
