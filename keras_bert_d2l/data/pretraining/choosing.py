"""Draw the positions to predict (tokens, whole words, n-grams or spans) and their new tokens.

B: batch size, T: tokens per row, P: predicted positions per row, W: words in the batch,
L: maximum number of words in a unit.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

# Each kind of decision has its own stream, so no two decisions share random numbers. 2 was that of
# a removed option; the others keep theirs, so that the masks of a seed stay the same.
CHOICE, UNIT_LENGTH, REPLACEMENT, ROW = (stream << 32 for stream in (0, 1, 3, 4))

# Probabilities of units with 1, 2, ... words.
_UNIT_WORDS = {
    "whole_word": np.ones(1),
    "ngram": np.array([6, 3, 2]) / 11,  # proportional to 1/n
    "span": 0.2 * 0.8 ** np.arange(10) / (1 - 0.8**10),  # geometric, truncated at 10; mean 3.8
}


def choose_tokens(
    is_candidate: tf.Tensor, count: tf.Tensor, keys: tf.Tensor, num_predictions: int
) -> tf.Tensor:
    """Sample `count` candidates of each row uniformly.

    Floyd's algorithm samples k of n without replacement in k draws: draw i = 0, 1, ... is uniform
    on 0 to n - k + i, and a repeated value is replaced by n - k + i.
    Source: Bentley and Floyd 1987, "A sample of brilliance".

    Returns:
        int32 `(B, P)`, the positions; T in unused slots.
    """
    num_rows, num_tokens = tf.unstack(tf.shape(is_candidate))
    num_candidates = tf.math.count_nonzero(is_candidate, axis=1, dtype=tf.int32)
    slots = tf.range(num_predictions)[:, None]  # (P, 1): in this function, B is the last axis
    last = num_candidates - count + slots
    draws = tf.transpose(uniform(keys, CHOICE, slots[:, 0]))
    drawn = tf.cast(draws * tf.cast(last + 1, tf.float64), tf.int32)
    chosen: list[tf.Tensor] = []
    for draw, largest in zip(
        tf.unstack(drawn, num_predictions), tf.unstack(last, num_predictions), strict=True
    ):
        is_repeated = tf.reduce_any(tf.equal(tf.stack(chosen), draw), 0) if chosen else False
        chosen.append(tf.where(is_repeated, largest, draw))

    # Convert candidate numbers to positions. The padding covers a batch without candidates.
    candidates = tf.pad(_flat_indices(is_candidate), [[0, 1]])
    first = tf.cumsum(num_candidates, exclusive=True)
    is_real = slots < count
    flat = tf.gather(candidates, tf.where(is_real, first + tf.stack(chosen), 0))
    return tf.transpose(tf.where(is_real, flat - tf.range(num_rows) * num_tokens, num_tokens))


class _Words(NamedTuple):
    """The words of all rows, concatenated, followed by L empty words that are never chosen.

    Attributes:
        starts: int32 `(W + L,)`, the index of each word's first token in the flattened batch.
        ends: int32 `(W + L,)`, the index after each word's last token.
        per_row: int32 `(B,)`, the number of words in each row.
    """

    starts: tf.Tensor
    ends: tf.Tensor
    per_row: tf.Tensor


def choose_words(
    is_candidate: tf.Tensor,
    is_piece: tf.Tensor,
    count: tf.Tensor,
    keys: tf.Tensor,
    strategy: str,
    num_predictions: int,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Choose whole words, n-grams or spans, with at most `count` tokens per row.

    Args:
        is_candidate: bool `(B, T)`, the tokens that may be chosen.
        is_piece: bool `(B, T)`, the tokens that continue a word.
        count: int32 `(B,)`, the number of predictions per row, at most its candidates.
        keys: int64 `(B,)`, one random number per row.
        strategy: `Masking.strategy`, but not `"token"`.
        num_predictions: P, at least the maximum of `count`.

    Returns:
        Two tensors, int32 `(B, P)`, with T in unused slots: the positions in ascending order, and
        the unit of each position, an id shared by tokens whose replacements are drawn together.
    """
    num_tokens, longest = tf.shape(is_candidate)[1], len(_UNIT_WORDS[strategy])
    after_candidate = tf.pad(is_candidate[:, :-1], [[0, 0], [1, 0]])
    before_piece = tf.pad((is_candidate & is_piece)[:, 1:], [[0, 0], [0, 1]])
    is_start = is_candidate & ~(is_piece & after_candidate)
    words = _Words(
        starts=tf.pad(_flat_indices(is_start), [[0, longest]]),
        ends=tf.pad(_flat_indices(is_candidate & ~before_piece) + 1, [[0, longest]]),
        per_row=tf.math.count_nonzero(is_start, axis=1, dtype=tf.int32),
    )
    unit, left = _choose_units(words, count, keys, num_tokens, strategy)
    chosen = _flat_indices(unit >= 0)  # the chosen words
    start, end = tf.gather(words.starts, chosen), tf.gather(words.ends, chosen)

    def to_rows(flat: tf.Tensor) -> tf.Tensor:
        rows = tf.RaggedTensor.from_row_lengths(flat % num_tokens, count - left, validate=False)
        return rows.to_tensor(num_tokens, shape=(None, num_predictions))

    positions = to_rows(tf.ragged.range(start, end).flat_values)
    if strategy == "whole_word":  # pieces are replaced independently, as in Google's BERT
        return positions, positions
    first = tf.gather(words.starts, tf.gather(unit, chosen))
    return positions, to_rows(tf.repeat(first, end - start))


def _choose_units(
    words: _Words, count: tf.Tensor, keys: tf.Tensor, num_tokens: tf.Tensor, strategy: str
) -> tuple[tf.Tensor, tf.Tensor]:
    """Visit the words of each row in random order and choose the unit that starts there, if any.

    Returns:
        int32 `(W,)`, the first word of the unit of each word, or -1 if the word is not chosen; and
        int32 `(B,)`, the unused part of `count`.
    """
    longest = len(_UNIT_WORDS[strategy])
    beyond, row_stop = tf.reduce_sum(words.per_row), tf.cumsum(words.per_row)
    draws = tf.transpose(uniform(keys, CHOICE, tf.range(num_tokens)))
    lengths = tf.transpose(uniform(keys, UNIT_LENGTH, tf.range(num_tokens)))

    def is_unfinished(turn: tf.Tensor, left: tf.Tensor) -> tf.Tensor:
        return (left > 0) & (turn < words.per_row)

    def visit(
        turn: tf.Tensor, order: tf.Tensor, unit: tf.Tensor, left: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        # One turn of a Fisher-Yates shuffle. Finished rows visit the first empty word.
        is_live = is_unfinished(turn, left)
        share = draws[turn] * tf.cast(words.per_row - turn, tf.float64)
        current = tf.where(is_live, row_stop - words.per_row + turn, beyond)
        drawn = tf.where(is_live, current + tf.cast(share, tf.int32), beyond)
        word = tf.gather(order, drawn)
        order = tf.tensor_scatter_nd_update(order, drawn[:, None], tf.gather(order, current))

        in_unit = word[:, None] + tf.range(longest)  # (B, L)
        start, end = tf.gather(words.starts, in_unit), tf.gather(words.ends, in_unit)
        fits = (end - start[:, :1] <= left[:, None]) & (in_unit < row_stop[:, None])
        if longest > 1:  # each single word is visited once, so none is taken
            is_taken = tf.gather(unit, in_unit) >= 0
            fits &= _is_within_length(lengths[turn], strategy) & _is_gapless(start, end)
            if strategy == "span":  # it may run across chosen words, but it never starts at one
                fits &= ~is_taken & ~is_taken[:, :1]
            else:
                fits &= ~tf.reduce_any(fits & is_taken, axis=1, keepdims=True)
        unit = tf.tensor_scatter_nd_update(
            unit, tf.reshape(tf.where(fits, in_unit, beyond), [-1, 1]), tf.repeat(word, longest)
        )
        return turn + 1, order, unit, left - tf.reduce_sum(tf.where(fits, end - start, 0), axis=1)

    _, _, unit, left = tf.while_loop(
        lambda turn, order, unit, left: tf.reduce_any(is_unfinished(turn, left)),
        visit,
        (0, tf.range(beyond + longest), tf.fill([beyond + longest], -1), count),
    )
    return unit[:beyond], left


def _is_within_length(draw: tf.Tensor, strategy: str) -> tf.Tensor:
    """Return a mask `(B, L)` of the words within the unit length sampled by `draw (B,)`."""
    shares = _UNIT_WORDS[strategy]
    more_words = tf.math.count_nonzero(
        draw[:, None] >= shares.cumsum()[:-1], axis=1, keepdims=True, dtype=tf.int32
    )
    return tf.range(len(shares)) <= more_words


def _is_gapless(start: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
    """Return a mask `(B, L)` of the words before the first gap (a special or excluded token)."""
    follows = tf.pad(start[:, 1:] == end[:, :-1], [[0, 0], [1, 0]], constant_values=True)
    return tf.math.cumprod(tf.cast(follows, tf.int32), axis=1) > 0


def _flat_indices(values: tf.Tensor) -> tf.Tensor:
    """Return the indices of the true elements of the flattened `values`, int32."""
    return tf.cast(tf.where(tf.reshape(values, [-1]))[:, 0], tf.int32)


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


def uniform(keys: tf.Tensor, stream: int, index: tf.Tensor) -> tf.Tensor:
    """Return random numbers in [0, 1), computed with the hash function of SplitMix64.

    TensorFlow's own generators take one seed for the entire tensor, so the numbers of a row would
    depend on the other rows. Here, each number is a hash of the key, the stream and a counter.

    Source: Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators".

    Args:
        keys: int64 `(B,)`, one random key per row.
        stream: One of the streams above.
        index: int32 `(N,)` or `(B, N)`, the indices of the numbers in the stream. A row gets the
            same number for the same index in both forms.

    Returns:
        float64 `(B, N)`.
    """
    # A float64 has room for the upper 53 bits. SplitMix64's last step, which only changes the
    # lower 33 bits, is omitted.
    bits = _bits(keys, stream, index)
    return tf.cast(tf.bitwise.right_shift(bits, np.uint64(11)), tf.float64) * 2.0**-53


def _bits(keys: tf.Tensor, stream: int, index: tf.Tensor) -> tf.Tensor:
    """Return the random bits of `uniform`, uint64 `(B, N)`."""
    counter = tf.cast(index, tf.uint64) + tf.constant(stream + 1, tf.uint64)
    bits = tf.bitcast(keys, tf.uint64)[:, None] + counter * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, np.uint64(shift)))
        bits *= np.uint64(factor)
    return bits


def row_keys(tokens: tf.Tensor, valid_lens: tf.Tensor, seed: int) -> tf.Tensor:
    """Return a key for each row that depends only on the seed and the row's ids without padding.

    It is the sum of the ids plus 1, each times a random factor of its position, modulo 2^64.
    Source: Lemire and Kaser 2014, "Strongly universal string hashing is fast" (Multilinear).

    Args:
        tokens: int32 `(B, T)`.
        valid_lens: int32 `(B,)`, the number of tokens before the padding.
        seed: A number below 2^63.

    Returns:
        int64 `(B,)`.
    """
    num_tokens = tf.shape(tokens)[1]
    factors = _bits(tf.constant([seed], tf.int64), ROW, tf.range(num_tokens))  # (1, T)
    is_token = tf.sequence_mask(valid_lens, num_tokens, tf.uint64)
    terms = (tf.cast(tokens, tf.uint64) + 1) * is_token * factors
    return tf.bitcast(tf.reduce_sum(terms, axis=1), tf.int64)
