"""Masked language modeling: choose the tokens to predict and corrupt them.

`masking_options` defines the options, `masked_positions` chooses the positions, and
`random_numbers` provides the random numbers.

B: batch size, T: tokens per row, P: predicted positions per row.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert_d2l.checks import check_range
from keras_bert_d2l.data.pretraining.masked_positions import choose_positions
from keras_bert_d2l.data.pretraining.masking_options import Masking
from keras_bert_d2l.data.pretraining.random_numbers import REPLACEMENT, uniform
from keras_bert_d2l.text.vocab import Vocab


class MaskedRows(NamedTuple):
    """A masked batch. A row with fewer than P predictions has zeros in the unused slots.

    Attributes:
        tokens: int32 `(B, T)`, the corrupted tokens.
        positions: int32 `(B, P)`, the positions to predict, in any order.
        labels: int32 `(B, P)`, the original tokens at these positions.
        weights: float32 `(B, P)`, 1 for a prediction and 0 for an unused slot.
    """

    tokens: tf.Tensor
    positions: tf.Tensor
    labels: tf.Tensor
    weights: tf.Tensor


def mask_tokens(
    tokens: tf.Tensor,
    valid_lens: tf.Tensor,
    keys: tf.Tensor,
    *,
    vocab: Vocab,
    masking: Masking,
    num_predictions: int,
) -> MaskedRows:
    """Choose the tokens to predict and corrupt them, using TensorFlow ops only.

    The result for a row depends only on its tokens and its key, not on the other rows of the batch.

    Args:
        tokens: int32 `(B, T)`, ids of the vocabulary.
        valid_lens: int32 `(B,)`, the number of tokens before the padding.
        keys: int64 `(B,)`, one random number per row.
        vocab: The vocabulary.
        masking: Which tokens to choose and how to corrupt them.
        num_predictions: P, the maximum number of predictions per row.

    Returns:
        The masked batch.

    Raises:
        ValueError: A token id is not in the vocabulary. In a graph, TensorFlow raises an
            `InvalidArgumentError`.
    """
    check_range("tokens", tokens, 0, len(vocab) - 1)
    num_tokens = tf.shape(tokens)[1]

    # 1. Choose. Special and excluded tokens are never chosen and never inserted.
    excluded = np.union1d(vocab.special_ids, masking.exclude).astype(int)
    ordinary_ids = np.setdiff1d(np.arange(len(vocab), dtype=np.int32), excluded)
    positions, units = choose_positions(
        tokens, valid_lens, keys, vocab, masking, excluded, num_predictions
    )
    is_real = positions < num_tokens  # T marks an unused slot
    positions = tf.where(is_real, positions, 0)  # (B, P)

    # 2. Corrupt.
    flat = positions + tf.range(tf.shape(tokens)[0])[:, None] * num_tokens
    originals = tf.gather(tf.reshape(tokens, [-1]), flat)  # (B, P)
    replaced = replace_tokens(
        originals, positions, units, keys, masking.replace, vocab.mask_id, ordinary_ids
    )

    # 3. Write back. Add the differences instead of scattering the new ids: unused slots all point
    # at position 0 with a difference of 0, and a scatter is several times slower.
    differences = tf.math.unsorted_segment_sum(
        tf.reshape(tf.where(is_real, replaced - originals, 0), [-1]),
        tf.reshape(flat, [-1]),
        tf.size(tokens),
    )
    corrupted = tokens + tf.reshape(differences, tf.shape(tokens))
    return MaskedRows(
        tokens=tf.ensure_shape(corrupted, tokens.shape),
        positions=positions,
        labels=tf.where(is_real, originals, 0),
        weights=tf.cast(is_real, tf.float32),
    )


def replace_tokens(
    originals: tf.Tensor,
    positions: tf.Tensor,
    units: tf.Tensor,
    keys: tf.Tensor,
    shares: tuple[float, float, float],
    mask_id: int,
    ordinary_ids: np.ndarray,
) -> tf.Tensor:
    """Replace 80% of the chosen tokens with the mask token and 10% with a random one; keep 10%.

    `[MASK]` never occurs in the text that a trained model is used on. Random and kept tokens
    force the model to represent every token, masked or not (Devlin et al. 2018, appendix C.2).

    Args:
        originals: int32 `(B, P)`, the chosen tokens.
        positions: int32 `(B, P)`, their positions.
        units: int32 `(B, P)`. The tokens of a row with the same unit share one draw.
        keys: int64 `(B,)`, one random number per row.
        shares: `Masking.replace`; (0.8, 0.1, 0.1) for BERT.
        mask_id: Id of the mask token.
        ordinary_ids: int32, the ids to draw random tokens from.

    Returns:
        int32 `(B, P)`, the tokens that the model sees instead.
    """
    mask_share, random_share, _ = shares
    draw = uniform(keys, REPLACEMENT, units)
    is_masked = draw < mask_share  # 80%: the mask token
    is_random = ~is_masked & (draw < mask_share + random_share)  # 10%: a random token
    # The other 10% keep the original token.

    # The upper bits of a draw decide the branch, so its lower bits can choose the random token.
    shifted = uniform(keys, REPLACEMENT, positions) * 2.0**21
    choice = tf.cast((shifted - tf.floor(shifted)) * len(ordinary_ids), tf.int32)
    random_tokens = tf.gather(ordinary_ids, choice)
    return tf.where(is_masked, mask_id, tf.where(is_random, random_tokens, originals))
