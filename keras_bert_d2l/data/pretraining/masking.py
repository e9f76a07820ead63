"""Masked language modeling: choose the tokens to predict and corrupt them.

`choosing` draws the positions and the new tokens.

B: batch size, T: tokens per row, P: predicted positions per row.
"""

import dataclasses
import functools
import math
import numbers
import operator
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import tensorflow as tf

from keras_bert_d2l.checks import (
    check_choice,
    check_integer,
    check_list,
    check_range,
    check_share,
    check_that,
    check_type,
)
from keras_bert_d2l.data.pretraining.choosing import (
    choose_tokens,
    choose_words,
    replace_tokens,
    row_keys,
)
from keras_bert_d2l.text.tokenizer.framing import not_converted
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.types import Tensor

Batch: TypeAlias = tuple[dict[str, tf.Tensor], dict[str, tf.Tensor], dict[str, tf.Tensor]]
"""The features, labels and weights of a batch."""
Strategy: TypeAlias = Literal["token", "whole_word", "ngram", "span"]
STRATEGIES = get_args(Strategy)


@dataclasses.dataclass(frozen=True)
class Masking:
    """Options of masked language modeling: which tokens to predict and how to corrupt them.

    Strategies:

    - `"token"`: single tokens, all equally likely (Devlin et al. 2018, section 3.1).
    - `"whole_word"`: whole words. A word is a token and the `##` pieces that follow it
      (github.com/google-research/bert, create_pretraining_data.py).
    - `"ngram"`: one, two or three consecutive words, with probabilities proportional to 1/n and
      without overlap (github.com/tensorflow/models, official/nlp/data/create_pretraining_data.py).
    - `"span"`: 1 to 10 consecutive words, geometrically distributed with p = 0.2
      (Joshi et al. 2019, SpanBERT).

    A row of n tokens, special tokens included, has `max(1, round(rate * n))` predictions, with
    halves rounded to even. The words of a row are visited in random order, and a word, n-gram or
    span starts at each until the row has enough predictions. A unit that exceeds the remaining
    count is shortened word by word. A single word that does not fit is skipped, so a row may have
    one or two predictions fewer than its count. No unit contains a special or an excluded token.

    Args:
        strategy: One of the strategies above.
        rate: Share of tokens to predict, in (0, 1).
        replace: Shares of the predicted tokens that are replaced with the mask token, replaced
            with a random token, and kept. `"ngram"` and `"span"` make this choice once per unit
            instead of once per token, as their sources do.
        exclude: Ids that, like the special tokens, are neither chosen nor inserted.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> import keras_bert_d2l as kb
        >>> masking = kb.Masking("whole_word", rate=0.2)
        >>> masking.num_predictions(128)
        26
    """

    strategy: Strategy = "token"
    rate: float = 0.15
    replace: tuple[float, float, float] = (0.8, 0.1, 0.1)
    exclude: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_choice("strategy", self.strategy, STRATEGIES)
        check_share("rate", self.rate)
        shares = self.replace if isinstance(self.replace, tuple | list) else ()
        are_numbers = len(shares) == 3 and all(isinstance(x, numbers.Real) for x in shares)
        are_shares = are_numbers and min(shares) >= 0 and math.isclose(sum(shares), 1)
        expected = "three shares that add up to 1: mask tokens, random tokens and kept tokens"
        check_that(are_shares, "replace", expected, self.replace)
        check_list("exclude", self.exclude, "token ids")
        for token in self.exclude:
            check_integer("exclude", token, 0)

    @classmethod
    def of(cls, masking: "Strategy | Masking") -> "Masking":
        """Convert the name of a strategy to a `Masking`, and return a `Masking` unchanged."""
        if isinstance(masking, str):
            return cls(masking)
        strategies = ", ".join(map(repr, STRATEGIES))
        check_type("masking", masking, cls, f"Pass one of {strategies} or a `Masking`.")
        return masking

    def num_predictions(self, max_len: int) -> int:
        """Return P, the number of predictions needed for a full row of `max_len` tokens."""
        return max(1, round(self.rate * max_len))

    def excluded_ids(self, vocab: Vocab) -> np.ndarray:
        """Return the sorted ids of the special and the excluded tokens."""
        check_range("exclude", self.exclude, 0, len(vocab) - 1)
        excluded = np.union1d(vocab.special_ids, self.exclude).astype(int)
        check_that(len(excluded) < len(vocab), "exclude", "some, not all tokens", self.exclude)
        return excluded


_Options: TypeAlias = tuple[Vocab, Masking, int]
"""The vocabulary, the masking and the number of predictions."""


class MaskedRows(NamedTuple):
    """A masked batch. A row with fewer than P predictions has zeros in the unused slots.

    Attributes:
        tokens: int32 `(B, T)`, the corrupted tokens.
        positions: int32 `(B, P)`, the positions to predict, in any order.
        labels: int32 `(B, P)`, the original tokens at these positions.
        weights: float32 `(B, P)`, 1 for a prediction and 0 for an unused slot.

    Example:
        >>> import keras_bert_d2l as kb
        >>> kb.MaskedRows._fields  # what `mask_tokens` returns
        ('tokens', 'positions', 'labels', 'weights')
    """

    tokens: tf.Tensor
    positions: tf.Tensor
    labels: tf.Tensor
    weights: tf.Tensor


@not_converted
def mask_tokens(
    tokens: Tensor,
    valid_lens: Tensor,
    keys: Tensor,
    *,
    vocab: Vocab,
    masking: Strategy | Masking,
    num_predictions: int,
) -> MaskedRows:
    """Choose the tokens to predict and corrupt them, using TensorFlow ops only.

    The result for a row depends only on its tokens and its key, not on the other rows or the
    padding. `MaskTokens` makes the keys in a `tf.data` pipeline. `pretraining_dataset` masks its
    rows with this function.

    Args:
        tokens: int `(B, T)`, ids of the vocabulary: tensor, array or nested lists.
        valid_lens: int `(B,)`, the number of tokens before the padding.
        keys: int64 `(B,)`, one random number per row.
        vocab: The `Vocab`.
        masking: A strategy (`"token"`, `"whole_word"`, `"ngram"` or `"span"`), or a `Masking`.
        num_predictions: P, the maximum number of predictions per row. `Masking.num_predictions`
            is enough for a full row.

    Returns:
        The masked batch.

    Raises:
        ValueError: An argument has the wrong type or shape, a token id is not in the vocabulary, or
            a length is not from 0 to T. In a graph, TensorFlow raises an `InvalidArgumentError`
            for a wrong value.

    Example:
        >>> import keras_bert_d2l as kb
        >>> vocab = kb.Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat"])
        >>> batch = kb.frame_tokens([[5, 6, 7], [6, 7]], vocab=vocab)
        >>> masked = kb.mask_tokens(
        ...     batch["tokens"],
        ...     batch["valid_lens"],
        ...     keys=[1, 2],
        ...     vocab=vocab,
        ...     masking=kb.Masking(replace=(1, 0, 0)),
        ...     num_predictions=1,
        ... )
        >>> masked.tokens.numpy().tolist(), masked.labels.numpy().tolist()
        ([[2, 5, 4, 7, 3], [2, 6, 4, 3, 0]], [[6], [7]])
    """
    options = _check_options(vocab, masking, num_predictions)
    tokens, valid_lens = _check_rows(tokens, valid_lens, vocab)
    keys = _one_per_row("keys", keys, tokens)
    check_that(keys.dtype.is_integer, "keys", "integers", keys)
    return _mask_rows(tokens, valid_lens, tf.cast(keys, tf.int64), options)


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
        self._options = _check_options(vocab, masking, num_predictions)
        self._seed = check_integer("seed", seed, 0) % (1 << 63)

    @not_converted
    def __call__(self, step: Tensor, batch: dict[str, Tensor] | None = None) -> Batch:
        step, batch = (None, step) if batch is None else (step, batch)
        is_batch = isinstance(batch, dict) and batch.keys() >= {"tokens", "valid_lens"}
        is_batch = is_batch and "pred_positions" not in batch
        expected = "a dictionary with `tokens` and `valid_lens`, without `pred_positions`"
        advice = (
            "A `Tokenizer` makes them of texts. If the elements are (x, y), use "
            "`dataset.map(lambda x, y: mask(x))`; it drops y."
        )
        check_that(is_batch, "batch", expected, batch, advice)
        tokens, valid_lens = _check_rows(batch["tokens"], batch["valid_lens"], self._options[0])
        if step is None:
            keys = row_keys(tokens, valid_lens, self._seed)
        else:
            number = tf.convert_to_tensor(step)
            is_number = number.dtype.is_integer and number.shape.rank == 0
            place = "Put `enumerate` after `batch`."
            check_that(is_number, "step", "an integer, the number of the batch", step, place)
            seeds = tf.stack([self._seed, tf.cast(number, tf.int64)])
            keys = tf.random.stateless_uniform(tf.shape(valid_lens), seeds, None, None, tf.int64)
        masked = _mask_rows(tokens, valid_lens, keys, self._options)
        features = {**batch, "tokens": masked.tokens, "pred_positions": masked.positions}
        return features, {"mlm": masked.labels}, {"mlm": masked.weights}


def _check_options(vocab: Vocab, masking: Strategy | Masking, num_predictions: int) -> _Options:
    """Check the options of `mask_tokens`, and return them with a `Masking`."""
    check_type("vocab", vocab, Vocab, "Pass `tokenizer.vocab`.")
    return vocab, Masking.of(masking), check_integer("num_predictions", num_predictions, 1)


def _check_rows(tokens: Tensor, valid_lens: Tensor, vocab: Vocab) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the tokens and their lengths as int32 tensors after checks."""
    tokens = _as_tensor("tokens", tokens, rank=2)
    check_range("tokens", tokens, 0, len(vocab) - 1)
    valid_lens = _one_per_row("valid_lens", valid_lens, tokens)
    check_range("valid_lens", valid_lens, 0, _size(tokens, 1))
    return tf.cast(tokens, tf.int32), tf.cast(valid_lens, tf.int32)


def _one_per_row(name: str, value: Tensor, tokens: tf.Tensor) -> tf.Tensor:
    tensor, num_rows = _as_tensor(name, value, rank=1), _size(tokens, 0)
    check_range(f"len({name})", _size(tensor, 0), num_rows, num_rows, "Each row needs one.")
    return tensor


def _as_tensor(name: str, value: Tensor, rank: int) -> tf.Tensor:
    try:
        tensor = tf.convert_to_tensor(value)
    except (TypeError, ValueError):  # ragged
        tensor = tf.constant("")
    is_right = tensor.dtype.is_integer or tensor.dtype.is_floating
    is_right &= tensor.shape.rank in (rank, None)
    expected = f"numbers of shape {'(B, T)' if rank == 2 else '(B,)'}"
    advice = "`dataset.batch(...)`, before the tokenizer, makes batches; `frame_tokens` pads rows."
    check_that(is_right, name, expected, value, advice)
    return tf.ensure_shape(tensor, [None] * rank)


def _size(tensor: tf.Tensor, axis: int) -> int | tf.Tensor:
    size = tensor.shape[axis]
    return tf.shape(tensor)[axis] if size is None else size


def _mask_rows(
    tokens: tf.Tensor, valid_lens: tf.Tensor, keys: tf.Tensor, options: _Options
) -> MaskedRows:
    """Return the result of `mask_tokens` for int32 tokens and lengths and int64 keys."""
    vocab, masking, num_predictions = options
    num_tokens = tf.shape(tokens)[1]

    # 1. Choose. Special and excluded tokens are never chosen and never inserted.
    excluded = masking.excluded_ids(vocab)
    ordinary_ids = np.setdiff1d(np.arange(len(vocab), dtype=np.int32), excluded)
    is_candidate = _find_candidates(tokens, valid_lens, excluded)
    count = tf.round(masking.rate * tf.cast(valid_lens, tf.float64))
    count = tf.clip_by_value(tf.cast(count, tf.int32), 1, num_predictions)
    count = tf.minimum(count, tf.math.count_nonzero(is_candidate, axis=1, dtype=tf.int32))
    if masking.strategy == "token":
        positions = units = choose_tokens(is_candidate, count, keys, num_predictions)
    else:
        is_piece = tf.gather(vocab.continues, tokens)
        positions, units = choose_words(
            is_candidate, is_piece, count, keys, masking.strategy, num_predictions
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


def _find_candidates(tokens: tf.Tensor, valid_lens: tf.Tensor, excluded: np.ndarray) -> tf.Tensor:
    """Return a mask `(B, T)` of the tokens that may be chosen: all but padding and `excluded` ids.

    `excluded` must be sorted. Tokens are compared with ranges of consecutive ids, which is several
    times faster than looking up each token.
    """
    runs = np.split(excluded, np.flatnonzero(np.diff(excluded) > 1) + 1)
    is_excluded = functools.reduce(
        operator.or_, [(tokens >= run[0]) & (tokens <= run[-1]) for run in runs]
    )
    return tf.sequence_mask(valid_lens, tf.shape(tokens)[1]) & ~is_excluded
