"""Masked language modelling: token ids in, corrupted ids and what to predict out.

B: batch size, T: tokens in a row, P: predicted positions, V: vocabulary size.
"""

import dataclasses
import functools
import math
import operator
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert_d2l.text.tokenizer.framing import require
from keras_bert_d2l.text.vocab.vocab import Vocab

# How many words a unit has: the probabilities of 1, 2, ... words.
_UNIT_WORDS = {
    "whole_word": np.ones(1),
    "ngram": np.array([6, 3, 2]) / 11,  # as 1/n
    "span": 0.2 * 0.8 ** np.arange(10) / (1 - 0.8**10),  # geometric, at most ten: 3.8 in the mean
}
STRATEGIES = ("token", *_UNIT_WORDS)
COUNTS = ("round", "ceil", "bernoulli")
_CHOICE, _LENGTH, _COUNT, _LOT = (stream << 32 for stream in range(4))  # random numbers


@dataclasses.dataclass(frozen=True)
class Masking:
    """Which tokens are predicted, and what the model sees in their places.

    Strategies:

    - `"token"`: single tokens, each as likely as another (Devlin et al. 2018, section 3.1).
    - `"whole_word"`: words, that is a piece and the `##` pieces that follow it, all or none of
      them (github.com/google-research/bert, create_pretraining_data.py).
    - `"ngram"`: one, two or three successive words, with probabilities as 1/n, that overlap no
      other choice (github.com/tensorflow/models, official/nlp/data/create_pretraining_data.py).
    - `"span"`: 1 to 10 successive words, geometric with p = 0.2 (Joshi et al. 2019, SpanBERT).

    Words, n-grams and spans are tried from each word of the row in a random order until the count
    is reached. One that does not fit into what is left loses words at its end, and a word that does
    not fit is passed over, so that a row may have a prediction or two less than its count. None
    reaches over a special or an excluded token.

    Args:
        strategy: One of the above.
        rate: Share of tokens to predict, in (0, 1).
        replace: Shares of the predicted tokens that become the mask token, that become a random
            token, and that stay. With `"ngram"` and `"span"` the lot is drawn for the unit and not
            for each of its tokens, as in their sources.
        count: How many tokens of a row are predicted. `"round"`: `max(1, round(rate * n))` of n
            tokens, special tokens included, halves to even (BERT). `"ceil"`: `ceil(rate * n)` of n
            tokens that may be chosen (tf.text). `"bernoulli"`: each that may be chosen with
            probability `rate`, so that the number is binomial (Hugging Face).
        exclude: Ids that, like the special tokens, are neither chosen nor inserted.

    Raises:
        ValueError: An argument is none of these.
    """

    strategy: str = "token"
    rate: float = 0.15
    replace: tuple[float, float, float] = (0.8, 0.1, 0.1)
    count: str = "round"
    exclude: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, names in (("strategy", STRATEGIES), ("count", COUNTS)):
            value = getattr(self, name)
            if value not in names:
                raise ValueError(
                    f"`{name}` must be one of {', '.join(map(repr, names))}. Received: "
                    f"{name}={value!r}."
                )
        if not 0 < self.rate < 1:
            raise ValueError(f"`rate` must be between 0 and 1. Received: rate={self.rate!r}.")
        shares = np.asarray(self.replace, float)
        if shares.shape != (3,) or shares.min() < 0 or not math.isclose(shares.sum(), 1):
            raise ValueError(
                "`replace` must be three shares that add up to 1: of mask tokens, of random tokens "
                f"and of tokens that stay. Received: replace={self.replace!r}."
            )

    def num_predictions(self, max_len: int) -> int:
        """P for rows of `max_len` tokens: enough for a full row.

        Four standard deviations above the mean where the count is binomial.
        """
        mean = self.rate * max_len
        if self.count == "ceil":
            return math.ceil(mean)
        if self.count == "bernoulli":
            return min(max_len, math.ceil(mean + 4 * math.sqrt(mean * (1 - self.rate))))
        return max(1, round(mean))


def mask_tokens(
    tokens: tf.Tensor,
    valid_lens: tf.Tensor,
    keys: tf.Tensor,
    *,
    vocab: Vocab,
    masking: Masking,
    num_predictions: int,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Chooses the tokens to predict and corrupts them.

    Runs in a TensorFlow graph. What becomes of a row depends on its tokens and on its key alone,
    not on the batch in which it stands.

    Args:
        tokens: int32 `(B, T)`, an id of the vocabulary at every place.
        valid_lens: int32 `(B,)`, the number of tokens before the padding.
        keys: int64 `(B,)`, a random number for each row.
        vocab: The vocabulary.
        masking: What to choose and how to corrupt it.
        num_predictions: P, at most T; no row has more predictions.

    Returns: the corrupted tokens, int32 `(B, T)`; the positions to predict, int32 `(B, P)`, in no
        order; the original tokens there, int32 `(B, P)`; their weights, float32 `(B, P)`, 1 for a
        prediction. Where a row has fewer than P predictions the rest of all three is 0.

    Raises:
        ValueError: A token is no id of the vocabulary (in a graph an `InvalidArgumentError`).
    """
    num_tokens = tf.shape(tokens)[1]
    are_ids = (tf.reduce_min(tokens) >= 0) & (tf.reduce_max(tokens) < len(vocab))
    message = f"`tokens` must be from 0 to {len(vocab) - 1}, the ids of the vocabulary."
    with tf.control_dependencies(require(are_ids, message)):
        tokens = tf.identity(tokens)
    excluded = np.unique([*vocab.special_ids, *masking.exclude])
    is_candidate = tf.sequence_mask(valid_lens, num_tokens) & ~_is_one_of(tokens, excluded)
    count = tf.minimum(_count(is_candidate, valid_lens, keys, masking), num_predictions)
    if masking.strategy == "token":
        positions = units = _choose_tokens(is_candidate, count, keys, num_predictions)
    else:
        continues = np.array([token.startswith("##") and token != "##" for token in vocab.tokens])
        is_piece = tf.gather(continues, tokens)
        choice = _choose_words(is_candidate, is_piece, count, keys, masking.strategy)
        positions, units = (x.to_tensor(num_tokens, shape=(None, num_predictions)) for x in choice)
    if masking.strategy == "whole_word":
        units = positions  # the pieces of a word draw one by one, as google's do
    is_real = positions < num_tokens
    positions = tf.where(is_real, positions, 0)
    labels = _at(tokens, positions)
    ordinary_ids = tf.constant(np.setdiff1d(np.arange(len(vocab)), excluded), tf.int32)
    replaced = _replace(labels, positions, units, keys, ordinary_ids, vocab.mask_id, masking)
    # Differences, summed: position 0, where the unused predictions point, stays as it is. (A
    # scatter does the same and takes several times as long.)
    differences = tf.math.unsorted_segment_sum(
        tf.reshape(tf.where(is_real, replaced - labels, 0), [-1]),
        tf.reshape(_flat(positions, num_tokens), [-1]),
        tf.size(tokens),
    )
    corrupted = tokens + tf.reshape(differences, tf.shape(tokens))
    corrupted = tf.ensure_shape(corrupted, tokens.shape)
    return corrupted, positions, tf.where(is_real, labels, 0), tf.cast(is_real, tf.float32)


def _count(
    is_candidate: tf.Tensor, valid_lens: tf.Tensor, keys: tf.Tensor, masking: Masking
) -> tf.Tensor:
    """How many tokens of each row to predict, int32 `(B,)`, never more than candidates."""
    num_candidates = tf.math.count_nonzero(is_candidate, axis=1, dtype=tf.int32)
    if masking.count == "round":
        share = tf.round(masking.rate * tf.cast(valid_lens, tf.float64))
        count = tf.maximum(tf.cast(share, tf.int32), 1)
    elif masking.count == "ceil":  # 0.07 * 100 is a little more than 7
        share = tf.math.ceil(masking.rate * tf.cast(num_candidates, tf.float64) - 1e-9)
        count = tf.cast(share, tf.int32)
    else:
        heads = _uniform(keys, _COUNT, tf.range(tf.shape(is_candidate)[1])) < masking.rate
        count = tf.math.count_nonzero(is_candidate & heads, axis=1, dtype=tf.int32)
    return tf.minimum(count, num_candidates)


def _choose_tokens(
    is_candidate: tf.Tensor, count: tf.Tensor, keys: tf.Tensor, num_predictions: int
) -> tf.Tensor:
    """`count` of the candidates of each row, all equally likely; `(B, P)`, T where there is none.

    Floyd's sample of k of n without repetition: the i-th of the k draws, i = 0, 1, ..., is
    uniform on 0 to n - k + i, and one that was drawn before is replaced by n - k + i.
    (Bentley and Floyd 1987, "A sample of brilliance".)
    """
    num_rows, num_tokens = tf.unstack(tf.shape(is_candidate))
    num_candidates = tf.math.count_nonzero(is_candidate, axis=1, dtype=tf.int32)
    slots = tf.range(num_predictions)[:, None]  # (P, 1): rows run along the last axis here
    last = num_candidates - count + slots
    uniform = tf.transpose(_uniform(keys, _CHOICE, slots[:, 0]))
    drawn = tf.cast(uniform * tf.cast(last + 1, tf.float64), tf.int32)
    chosen: list[tf.Tensor] = []
    for draw, largest in zip(
        tf.unstack(drawn, num_predictions), tf.unstack(last, num_predictions), strict=True
    ):
        repeated = tf.reduce_any(tf.equal(tf.stack(chosen), draw), 0) if chosen else False
        chosen.append(tf.where(repeated, largest, draw))
    # From the number of a candidate to its position.
    candidates = tf.pad(_where(is_candidate), [[0, 1]])  # there may be none
    first = tf.cumsum(num_candidates, exclusive=True)
    is_real = slots < count
    flat = tf.gather(candidates, tf.where(is_real, first + tf.stack(chosen), 0))
    positions = tf.where(is_real, flat - tf.range(num_rows) * num_tokens, num_tokens)
    return tf.transpose(positions)


def _choose_words(
    is_candidate: tf.Tensor,
    is_piece: tf.Tensor,
    count: tf.Tensor,
    keys: tf.Tensor,
    strategy: str,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Units of whole words, `count` tokens of each row at most.

    Args:
        is_candidate: bool `(B, T)`, the tokens that may be chosen.
        is_piece: bool `(B, T)`, whether a token goes on with the word before it.
        count: int32 `(B,)`.
        keys: int64 `(B,)`.
        strategy: One of `_UNIT_WORDS`.

    Returns: the positions chosen, ascending, and for each the position where its unit begins; both
        int32 `(B, None)`.
    """
    num_tokens = tf.shape(is_candidate)[1]
    after_candidate = tf.pad(is_candidate[:, :-1], [[0, 0], [1, 0]])
    before_piece = tf.pad((is_candidate & is_piece)[:, 1:], [[0, 0], [0, 1]])
    is_start = is_candidate & ~(is_piece & after_candidate)
    num_words = tf.math.count_nonzero(is_start, axis=1, dtype=tf.int32)
    # All words of the batch, end to end, with a few more at the end that nobody chooses.
    beyond = tf.reduce_sum(num_words)
    lengths = tf.constant(_UNIT_WORDS[strategy].cumsum()[:-1])
    longest = len(_UNIT_WORDS[strategy])
    starts = tf.pad(_where(is_start), [[0, longest]])
    ends = tf.pad(_where(is_candidate & ~before_piece) + 1, [[0, longest]])
    row_stop = tf.cumsum(num_words)
    row_start = row_stop - num_words
    turns = tf.range(num_tokens)
    by_turn = [tf.transpose(_uniform(keys, stream, turns)) for stream in (_CHOICE, _LENGTH)]

    def goes_on(turn: tf.Tensor, order: tf.Tensor, unit: tf.Tensor, left: tf.Tensor) -> tf.Tensor:
        return tf.reduce_any((left > 0) & (turn < num_words))

    def choose(turn: tf.Tensor, order: tf.Tensor, unit: tf.Tensor, left: tf.Tensor) -> Any:
        draw, length = (x[turn] for x in by_turn)
        # Fisher and Yates: the next of a random order of the words of each row.
        is_live = (left > 0) & (turn < num_words)
        others = tf.cast(draw * tf.cast(num_words - turn, tf.float64), tf.int32)
        drawn = tf.where(is_live, row_start + turn + others, beyond)
        word = tf.gather(order, drawn)
        next_word = tf.gather(order, tf.where(is_live, row_start + turn, beyond))
        order = tf.tensor_scatter_nd_update(order, drawn[:, None], next_word)

        words = word[:, None] + tf.range(longest)
        start, end = tf.gather(starts, words), tf.gather(ends, words)
        fits = (end - start[:, :1] <= left[:, None]) & (words < row_stop[:, None])
        if longest > 1:
            fits &= tf.range(longest) <= tf.math.count_nonzero(
                length[:, None] >= lengths, axis=1, keepdims=True, dtype=tf.int32
            )
            follows = tf.pad(start[:, 1:] == end[:, :-1], [[0, 0], [1, 0]], constant_values=True)
            fits &= tf.math.cumprod(tf.cast(follows, tf.int32), axis=1) > 0
            is_taken = tf.gather(unit, words) >= 0
            if strategy == "ngram":
                fits &= ~tf.reduce_any(fits & is_taken, axis=1, keepdims=True)
            else:  # goes through what is chosen already, but does not begin there
                fits &= ~is_taken & ~is_taken[:, :1]
        unit = tf.tensor_scatter_nd_update(
            unit,
            tf.reshape(tf.where(fits, words, beyond), [-1, 1]),
            tf.repeat(word, longest),
        )
        return turn + 1, order, unit, left - tf.reduce_sum(tf.where(fits, end - start, 0), axis=1)

    none = tf.fill([beyond + longest], -1)
    state = (0, tf.range(beyond + longest), none, count)
    _, _, unit, left = tf.while_loop(goes_on, choose, state)
    chosen = _where(unit[:beyond] >= 0)
    start = tf.gather(starts, chosen)
    sizes = tf.gather(ends, chosen) - start
    first = tf.repeat(start - tf.cumsum(sizes, exclusive=True), sizes)
    positions = first + tf.range(tf.size(first))
    units = tf.repeat(tf.gather(starts, tf.gather(unit, chosen)), sizes)
    return tuple(
        tf.RaggedTensor.from_row_lengths(flat % num_tokens, count - left, validate=False)
        for flat in (positions, units)
    )


def _replace(
    labels: tf.Tensor,
    positions: tf.Tensor,
    units: tf.Tensor,
    keys: tf.Tensor,
    ordinary_ids: tf.Tensor,
    mask_id: int,
    masking: Masking,
) -> tf.Tensor:
    """What stands in the place of `labels (B, P)`; the lot is drawn for each of `units (B, P)`."""
    masked, drawn, _ = masking.replace
    lot = _uniform(keys, _LOT, units)
    # The lot depends on the upper bits of a random number. Its lower ones choose the token.
    shifted = _uniform(keys, _LOT, positions) * 2.0**21
    lower_bits = shifted - tf.floor(shifted)
    choice = tf.cast(lower_bits * tf.cast(tf.size(ordinary_ids), tf.float64), tf.int32)
    replaced = tf.where(lot < masked + drawn, tf.gather(ordinary_ids, choice), labels)
    return tf.where(lot < masked, mask_id, replaced)


def _uniform(keys: tf.Tensor, stream: int, index: tf.Tensor) -> tf.Tensor:
    """Random numbers in [0, 1), float64 `(B, N)`, of `keys (B,)`, a stream and an index.

    The index is int32 `(N,)` or `(B, N)`; number n of a stream is the same in either form.

    SplitMix64: TensorFlow's own generators take one seed for a whole tensor, so that a row would
    depend on its batch. (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
    generators".)
    """
    counter = tf.cast(index, tf.uint64) + tf.constant(stream + 1, tf.uint64)
    bits = tf.bitcast(keys, tf.uint64)[:, None] + counter * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, np.uint64(shift)))
        bits *= np.uint64(factor)
    bits = tf.bitwise.right_shift(bits, np.uint64(11))  # its last step moves lower bits only
    return tf.cast(bits, tf.float64) * 2.0**-53


def _is_one_of(tokens: tf.Tensor, ids: np.ndarray) -> tf.Tensor:
    """Whether each of the tokens is one of `ids`, which ascend.

    Comparisons with the runs that they form: looking up each token takes several times as long.
    """
    runs = np.split(ids, np.flatnonzero(np.diff(ids) > 1) + 1)
    is_in_run = [(tokens >= run[0]) & (tokens <= run[-1]) for run in runs]
    return functools.reduce(operator.or_, is_in_run)


def _where(values: tf.Tensor) -> tf.Tensor:
    """Where the flattened `values` are true, int32."""
    return tf.cast(tf.where(tf.reshape(values, [-1]))[:, 0], tf.int32)


def _flat(positions: tf.Tensor, num_tokens: tf.Tensor) -> tf.Tensor:
    """Positions `(B, N)` in rows of `num_tokens` as positions in the flat tensor."""
    return positions + tf.range(tf.shape(positions)[0])[:, None] * num_tokens


def _at(values: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    """`values (B, T)` at `positions (B, N)`."""
    flat = _flat(positions, tf.shape(values)[1])
    return tf.gather(tf.reshape(values, [-1]), flat)
