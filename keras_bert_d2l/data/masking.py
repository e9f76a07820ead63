"""Masked language modelling: token ids in, corrupted ids and what to predict out.

B: batch size, T: tokens in a sequence, P: predicted positions, V: vocabulary size.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

PREDICTED = 0.15  # share of a sequence's tokens, special tokens counted
MASKED, RANDOM = 0.8, 0.1  # of the predicted ones; the remaining 10 % stay as they are


def mask_tokens(
    tokens: tf.Tensor,
    valid_lens: tf.Tensor,
    *,
    num_predictions: int,
    mask_id: int,
    special_ids: Sequence[int],
    vocab_size: int,
    seed: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Chooses the tokens to predict and corrupts them by BERT's rule.

    Of a sequence of n tokens, special tokens included, `max(1, round(0.15 n))` are predicted, at
    most P and at most as many as are not special. 80 % of them become `mask_id`, 10 % a token drawn
    uniformly from all that are not special, 10 % stay. Halves are rounded to even, as Python does.
    (Devlin et al. 2018, section 3.1; github.com/google-research/bert, create_pretraining_data.py.)

    Runs in a TensorFlow graph and draws nothing but what `seed` says.

    Args:
        tokens: int32 `(B, T)`, an id of the vocabulary at every place.
        valid_lens: int32 `(B,)`, the number of tokens before the padding.
        num_predictions: P, at most T.
        mask_id: Id of the mask token.
        special_ids: Ids that are neither chosen nor inserted.
        vocab_size: V.
        seed: int32 `(2,)`.

    Returns: the corrupted tokens, int32 `(B, T)`; the positions to predict, int32 `(B, P)`,
        ascending; the original tokens there, int32 `(B, P)`; their weights, float32 `(B, P)`, 1 for
        a prediction. Where a row has fewer than P predictions the rest of all three is 0.
    """
    shape, num_tokens = tf.shape(tokens), tf.shape(tokens)[1]
    is_special = np.isin(np.arange(vocab_size), special_ids)
    ordinary_ids = tf.constant(np.flatnonzero(~is_special), tf.int32)
    choice_seed, kind_seed, token_seed = tf.unstack(tf.random.split(seed, 3))

    # A random order of the tokens that may be chosen; the first `count` are.
    is_candidate = tf.sequence_mask(valid_lens, num_tokens) & ~tf.gather(is_special, tokens)
    rank = tf.where(is_candidate, tf.random.stateless_uniform(shape, choice_seed), -1.0)
    rank, chosen = tf.math.top_k(rank, num_predictions)  # (B, P)
    count = tf.cast(tf.round(PREDICTED * tf.cast(valid_lens, tf.float64)), tf.int32)
    is_chosen = (rank >= 0) & tf.sequence_mask(tf.maximum(count, 1), num_predictions)
    positions = tf.sort(tf.where(is_chosen, chosen, num_tokens), axis=1)  # the chosen first
    is_real = positions < num_tokens
    positions = tf.where(is_real, positions, 0)

    labels = tf.gather(tokens, positions, batch_dims=1)
    kind = tf.random.stateless_uniform(tf.shape(labels), kind_seed)
    drawn = tf.random.stateless_uniform(
        tf.shape(labels), token_seed, 0, tf.size(ordinary_ids), tf.int32
    )
    replaced = tf.where(kind < MASKED + RANDOM, tf.gather(ordinary_ids, drawn), labels)
    replaced = tf.where(kind < MASKED, mask_id, replaced)
    # Adding differences leaves position 0, where the unused predictions point, as it is.
    rows = tf.broadcast_to(tf.range(shape[0])[:, None], tf.shape(positions))
    corrupted = tf.tensor_scatter_nd_add(
        tokens, tf.stack([rows, positions], axis=2), tf.where(is_real, replaced - labels, 0)
    )
    return corrupted, positions, tf.where(is_real, labels, 0), tf.cast(is_real, tf.float32)
