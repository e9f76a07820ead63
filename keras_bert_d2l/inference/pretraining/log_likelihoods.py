"""Pseudo-log-likelihoods: how well a model predicts each token of a text from the others.

B: rows per batch, T: tokens per row, V: vocabulary size.
"""

from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
from keras import ops

from keras_bert_d2l.checks import shown
from keras_bert_d2l.inference.batching import (
    check_lengths,
    length_batches,
    padded_length,
    predict_batch,
)
from keras_bert_d2l.layers.kernels.cross_entropy import cross_entropy
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.progress import stage
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer


def pseudo_log_likelihoods(
    model: BERTModel,
    tokenizer: Tokenizer,
    texts: list[str],
    *,
    batch_size: int,
    word_wise: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum of the log probabilities of each text's tokens.

    Each token is masked in its own copy of the text. Copies of similar length form a batch, also if
    they belong to different texts.

    Args:
        model: The model.
        tokenizer: The tokenizer.
        texts: The texts.
        batch_size: Masked copies per batch.
        word_wise: Whether to mask also the tokens of the same word that follow a token.

    Returns: the sums, float64 `(texts,)`, and the numbers of predicted tokens, int `(texts,)`.

    Raises:
        ValueError: A text has no token to predict, or is longer than the model's `max_len`.
    """
    vocab = tokenizer.vocab
    rows = {name: np.asarray(values) for name, values in tokenizer(texts).items()}
    check_lengths(rows["valid_lens"], texts, model.bert_config.max_len)
    # Equal texts get equal results, which float errors in different batches would prevent.
    tokens, first, places = np.unique(
        rows["tokens"], axis=0, return_index=True, return_inverse=True
    )  # (different texts, T), (different texts,), (texts,)
    lengths = rows["valid_lens"][first]
    not_predicted = (vocab.pad_id, vocab.cls_id, vocab.sep_id, vocab.mask_id)
    is_predicted = ~np.isin(tokens, not_predicted)  # (different texts, T)
    counts = is_predicted.sum(axis=1)
    if not counts.all():
        text = texts[int(first[counts.argmin()])]
        raise ValueError(f"Each text must have a token to predict. Received: {shown(text)}.")
    continues = np.array([word_wise and token.startswith("##") for token in vocab.tokens])
    ends = _ends_of_words(continues[tokens])  # (different texts, T)
    sums = np.zeros(len(tokens))
    is_tensorflow = keras.backend.backend() == "tensorflow"
    step = 1 if is_tensorflow else 8
    # A second batch uses the cores that the first one leaves idle between its matrix products.
    # Under JAX, calls may not overlap: each takes over the memory of the model's state.
    at_a_time = 2 if is_tensorflow else 1
    numbers, positions = np.nonzero(is_predicted)  # one masked copy per predicted token

    def losses_of(chosen_copies: np.ndarray) -> np.ndarray:
        """Return the cross entropies of a batch of masked copies, `(B,)`."""
        number, position = numbers[chosen_copies], positions[chosen_copies]
        copies = tokens[number, : padded_length(lengths[number], step)]  # (B, T)
        targets = copies[np.arange(len(number)), position]
        is_masked = _is_between(position, ends[number, position], copies.shape[1])
        batch = {
            "tokens": np.where(is_masked, vocab.mask_id, copies).astype("int32"),
            "segments": np.zeros_like(copies),
            "valid_lens": lengths[number],
            "pred_positions": position[:, None].astype("int32"),
        }
        logits = predict_batch(model, batch)["mlm"][:, 0]  # (B, V)
        losses = cross_entropy(*map(ops.convert_to_tensor, (targets, logits)))  # (B,)
        return ops.convert_to_numpy(losses)

    batches = list(length_batches(lengths[numbers], batch_size))
    with (
        stage("Predicting", int(counts @ lengths)) as work,
        ThreadPoolExecutor(at_a_time) as pool,
    ):
        for chosen, losses in zip(batches, pool.map(losses_of, batches), strict=True):
            np.subtract.at(sums, numbers[chosen], losses)
            work.advance(int(lengths[numbers[chosen]].sum()))
    return sums[places], counts[places]


def _is_between(starts: np.ndarray, ends: np.ndarray, length: int) -> np.ndarray:
    """Return a mask `(B, length)` of the positions from each start up to before its end."""
    columns = np.arange(length)
    return (starts[:, None] <= columns) & (columns < ends[:, None])


def _ends_of_words(continues: np.ndarray) -> np.ndarray:
    """Return the position after the word of each token, int `(texts, T)`.

    Args:
        continues: Whether a token continues a word, `(texts, T)`.
    """
    length = continues.shape[1]
    starts = np.where(continues, length, np.arange(length))  # of the words
    next_starts = np.pad(starts[:, 1:], ((0, 0), (0, 1)), constant_values=length)
    return np.minimum.accumulate(next_starts[:, ::-1], axis=1)[:, ::-1]
