"""Ask the pretraining heads: the most likely tokens for masks, and whether a text follows another.

B: texts or pairs per batch, T: tokens per text, P: maximum number of masks per text, V: vocabulary
size, k: predictions per mask.
"""

import dataclasses
from collections.abc import Mapping

import keras
import numpy as np
from keras import ops

from keras_bert_d2l.checkpoints.checks import check_head
from keras_bert_d2l.checks import check_integer, check_that, is_integer, shown
from keras_bert_d2l.inference.prediction import (
    Result,
    TextRows,
    Texts,
    asked_model,
    one_per_text,
    predict_texts,
    text_pairs,
)
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.text_inputs import Preprocessor
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text_arguments import text_list
from keras_bert_d2l.types import PathLike, Tensor


@dataclasses.dataclass(frozen=True, repr=False)
class Prediction(Result):
    """A token predicted for a mask.

    Attributes:
        token: The token as spelled in the vocabulary: a word, or `##` and a part of a word. For
            tokenizers other than WordPiece, its text, with a space before it if it starts a word;
            as in the vocabulary if it is a space or a part of a character.
        id: The id of the token.
        score: The probability of the token among all V tokens, including special tokens.

    Example:

    ```python
    import keras_bert_d2l as kb

    kb.Prediction(token="capital", id=3007, score=0.997)
    ```
    """

    token: str
    id: int
    score: float


DEFAULT_TOP_K = 5

Predictions = list[list[Prediction]]
"""The predictions for one text: a list of k predictions for each mask."""


@one_per_text(Predictions)
def fill_mask(
    model: keras.Model | PathLike,
    texts: str | Texts,
    *,
    top_k: int = DEFAULT_TOP_K,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    truncate: bool = True,
) -> Predictions | list[Predictions]:
    """Predict the masked tokens in texts.

    Write a mask as the vocabulary's mask token: `[MASK]`, or `<mask>` in the book. A text may have
    several masks; each is predicted independently, from the text with all masks in place.

    Args:
        model: The model, or the path or the name of its checkpoint, which is loaded at each call.
        texts: A text, or several, as for `classify`.
        top_k: Number of predictions per mask, k.
        tokenizer: The tokenizer. `None` means `model.tokenizer`.
        batch_size: Texts per batch.
        truncate: As for `classify`. Truncating a mask is an error.

    Returns: for one text, a list with the k most likely `Prediction`s of each mask; for a list of
        texts, a list of such lists.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The model's checkpoint lacked the MLM head, a text has no mask, a mask would
            be truncated, a text is too long with `truncate=False`, the vocabulary does not have the
            model's size, or `top_k` or `batch_size` is out of range.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat".split()))
    model = kb.BERTModel(8, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    for prediction in kb.fill_mask(model, "the [MASK] sat", tokenizer=tokenizer)[0]:
        print(prediction.token, prediction.score)
    ```
    """
    model, tokenizer = asked_model(model, BERTModel, tokenizer=tokenizer)
    check_head(model, "mlm")
    check_top_k(top_k, len(tokenizer.vocab))
    check_integer("batch_size", batch_size, 1)
    found = text_list("texts", texts)
    rows = TextRows(Preprocessor(model, tokenizer), [found], truncate)
    answers: list[Predictions] = []
    for start in range(0, len(found), batch_size):
        some = found[start : start + batch_size]
        batch = rows(start, start + len(some))
        answers += _fill_batch(model, tokenizer, some, batch, top_k)
    return answers[0] if isinstance(texts, str) else answers


def top_predictions(mlm_logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Return the most likely tokens at each position.

    Args:
        mlm_logits: `(B, P, V)`, of any float dtype.
        top_k: Number of tokens, k.

    Returns: probabilities, float32 `(B, P, k)`, in descending order, and the token ids, int32.
    """
    scores, ids = ops.top_k(ops.softmax(ops.cast(mlm_logits, "float32")), top_k)
    return scores, ops.cast(ids, "int32")


def check_top_k(top_k: int, vocab_size: int) -> None:
    """Raise `ValueError` if `top_k` is not between 1 and the vocabulary size."""
    expected = f"from 1 to the vocabulary size, {vocab_size}"
    check_that(is_integer(top_k) and 1 <= top_k <= vocab_size, "top_k", expected, top_k)


def _fill_batch(
    model: BERTModel,
    tokenizer: Tokenizer,
    texts: list[str],
    batch: Mapping[str, Tensor],
    top_k: int,
) -> list[Predictions]:
    max_len, mask_id = model.bert_config.max_len, tokenizer.vocab.mask_id
    is_mask = batch["tokens"] == mask_id
    num_masks = is_mask.sum(axis=1)  # (B,)
    for row in np.flatnonzero((num_masks == 0) | (batch["valid_lens"] == max_len)):
        num_in_text = int((tokenizer.tokenize(texts[row]).flat_values.numpy() == mask_id).sum())
        if num_masks[row] < max(num_in_text, 1):
            mask = tokenizer.vocab.to_tokens(mask_id)
            within = f" of {num_in_text} masks within them" if num_in_text else " masks"
            raise ValueError(
                f"Each text must contain a mask, {mask}, and all masks within {max_len} tokens. "
                f"Received: {num_masks[row]}{within}, in {shown(texts[row])}."
            )
    # A stable sort by "is not a mask" puts the positions of the masks first, in ascending order.
    positions = np.argsort(~is_mask, axis=1, kind="stable")[:, : num_masks.max()]
    _, mlm_logits, _ = model(**batch, pred_positions=positions.astype("int32"), training=False)
    all_scores, all_ids = map(ops.convert_to_numpy, top_predictions(mlm_logits, top_k))
    return [
        [
            [
                Prediction(tokenizer.vocab.spelled(int(id_)), int(id_), float(score))
                for id_, score in zip(ids, scores, strict=True)
            ]
            for ids, scores in zip(all_ids[row, :count], all_scores[row, :count], strict=True)
        ]
        for row, count in enumerate(num_masks)
    ]


def next_sentence_score(
    model: keras.Model | PathLike,
    a: str | Texts,
    b: str | Texts,
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    truncate: bool = True,
) -> float | np.ndarray:
    """Return the probability that one text follows another, from the next-sentence head.

    For a model pretrained on sentence order, the same head gives the probability that the two
    sentences are in the right order.

    Source: Devlin et al. 2019, section 3.1, task 2.

    Args:
        model: The model, or the path or the name of its checkpoint, which is loaded at each call.
        a: The first text, or several, as for `classify`.
        b: The second text, or as many. One text beside a list is repeated.
        tokenizer: The tokenizer. `None` means `model.tokenizer`.
        batch_size: Pairs per batch.
        truncate: As for `classify`. The longer text of a pair is truncated first.

    Returns: the probability that `b` follows `a`, column 1 of the head; for lists, float32 `(B,)`.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The model or its checkpoint has no next-sentence head, a pair is too long with
            `truncate=False`, the lists differ in length, or the vocabulary does not have the
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
    rows = TextRows(Preprocessor(model, tokenizer), [firsts, seconds], truncate)
    logits = np.zeros((len(firsts), 2), "float32")
    for number, outputs in enumerate(predict_texts(model, rows, len(firsts), batch_size)):
        logits[number] = outputs["nsp"]
    scores = ops.convert_to_numpy(ops.softmax(logits))[:, 1]
    return float(scores[0]) if isinstance(a, str) and isinstance(b, str) else scores
