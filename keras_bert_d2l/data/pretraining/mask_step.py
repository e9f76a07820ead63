"""`MaskTokens`: the masking step of a `tf.data` pipeline of the user.

B: batch size, T: tokens per row, P: predicted positions per row.
"""

import tensorflow as tf

from keras_bert_d2l.checks import check_integer, check_that, shown
from keras_bert_d2l.data.pretraining.choosing import row_keys
from keras_bert_d2l.data.pretraining.masking import (
    Batch,
    Masking,
    Strategy,
    check_options,
    check_rows,
    mask_rows,
)
from keras_bert_d2l.text.tokenizer.framing import not_converted
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.types import Tensor


class MaskTokens:
    """Masking step of a `tf.data` pipeline of your own.

    `dataset.map(mask)` needs batches, each a dictionary. The masks of a row then depend only on the
    seed and its ids without padding: they are the same in every epoch and every process, and rows
    with the same ids have the same masks.

    `dataset.repeat(epochs).enumerate().map(mask)` also passes the number of the batch. The masks
    then depend on the seed, this number and the place of the row in the batch, so every epoch has
    new masks. Both are deterministic with `num_parallel_calls`.

    Args:
        vocab: The `Vocab` of the ids, such as `tokenizer.vocab`. Exclude special tokens of your
            own, those in `tokenizer.options["special_tokens"]`, by `Masking(exclude=...)`.
        masking: A strategy (`"token"`, `"whole_word"`, `"ngram"` or `"span"`), or a `Masking` with
            all options.
        num_predictions: P, the maximum number of predictions per row. `Masking.num_predictions`
            is enough for a full row.
        seed: Random seed, at least 0.

    Call arguments:
        step: The number of the batch, an integer; see above.
        batch: A dictionary with `tokens`, int `(B, T)`, and `valid_lens`, int `(B,)`, the number of
            tokens before the padding, as from `Tokenizer` and `frame_tokens`. Other entries remain.

    Returns:
        `(features, labels, weights)` for `fit`: the batch with the corrupted `tokens`, int32
        `(B, T)`, and `pred_positions`, int32 `(B, P)`; `{"mlm": labels}`, int32 `(B, P)`; and
        `{"mlm": weights}`, float32 `(B, P)`, 0 for unused predictions.

    Raises:
        ValueError: As from `mask_tokens`, or if an element of the dataset is not such a batch.

    Example:
        >>> import keras_bert_d2l as kb
        >>> import tensorflow as tf
        >>> words = "the cat sat on a mat".split()
        >>> vocab = kb.Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
        >>> tokenizer = kb.Tokenizer(vocab)
        >>> mask = kb.MaskTokens(vocab, "whole_word", num_predictions=2)
        >>> texts = tf.data.Dataset.from_tensor_slices(["the cat sat", "a cat sat on the mat"])
        >>> batches = texts.batch(2).map(lambda texts: tokenizer(texts, max_len=8))
        >>> batches = batches.repeat(10).enumerate().map(mask, num_parallel_calls=tf.data.AUTOTUNE)
        >>> features, labels, weights = next(iter(batches))
        >>> features["pred_positions"].shape, labels["mlm"].shape
        (TensorShape([2, 2]), TensorShape([2, 2]))
    """

    def __init__(
        self,
        vocab: Vocab,
        masking: Strategy | Masking = "token",
        *,
        num_predictions: int,
        seed: int = 0,
    ) -> None:
        self._options = vocab, check_options(vocab, masking, num_predictions), num_predictions
        self._seed = check_integer("seed", seed, 0) % (1 << 63)

    @not_converted
    def __call__(self, step: Tensor, batch: dict[str, Tensor] | None = None) -> Batch:
        step, batch = (None, step) if batch is None else (step, batch)
        _check_batch(step, batch)
        tokens, valid_lens = check_rows(batch["tokens"], batch["valid_lens"], self._options[0])
        if step is None:
            keys = row_keys(tokens, valid_lens, self._seed)
        else:
            seeds = tf.stack([self._seed, tf.cast(step, tf.int64)])
            keys = tf.random.stateless_uniform(tf.shape(valid_lens), seeds, None, None, tf.int64)
        masked = mask_rows(tokens, valid_lens, keys, *self._options)
        features = {**batch, "tokens": masked.tokens, "pred_positions": masked.positions}
        return features, {"mlm": masked.labels}, {"mlm": masked.weights}


def _check_batch(step: Tensor | None, batch: object) -> None:
    """Check the elements of a dataset for `MaskTokens`."""
    if isinstance(step, dict) or not isinstance(batch, dict):
        received = batch if step is None else (step, batch)
        raise ValueError(
            "The elements of the dataset must be dictionaries, numbered by `enumerate()` or not. "
            f"Received: {shown(received)}. If they are (x, y), use "
            "`dataset.map(lambda x, y: mask(x))`, or "
            "`dataset.enumerate().map(lambda step, element: mask(step, element[0]))`."
        )
    if not {"tokens", "valid_lens"} <= batch.keys() or "pred_positions" in batch:
        raise ValueError(
            "`batch` must have the entries `tokens` and `valid_lens`, as from `Tokenizer` and "
            "`frame_tokens`, but no `pred_positions`, which masking adds. Received: "
            f"{', '.join(map(repr, batch)) or 'an empty dictionary'}."
        )
    number = tf.convert_to_tensor(0 if step is None else step)
    is_number = number.dtype.is_integer and number.shape.rank == 0
    check_that(is_number, "step", "an integer, the number of the batch", step)
