"""The pretraining pipeline: a corpus or a token store in, batches for `fit` out.

B: batch size, T: tokens in a row, P: predicted positions.
"""

import dataclasses
import os
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert_d2l.data.masking import PREDICTED, mask_tokens
from keras_bert_d2l.data.pairs import make_pairs
from keras_bert_d2l.data.store import TokenStore, cached_store
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab

_ORDER_STREAM, _MASK_STREAM = 1, 2  # of random numbers; stream 0 of each epoch makes the pairs


def pretraining_dataset(
    corpus_or_store: Corpus | TokenStore,
    tokenizer: Tokenizer,
    *,
    batch_size: int,
    max_len: int = 128,
    num_predictions: int | None = None,
    seed: int = 0,
    epochs: int | None = 1,
    first_step: int = 0,
    split: str | None = None,
    held_out: float = 0.05,
    drop_remainder: bool = True,
    cache_dir: str | os.PathLike[str] | None = None,
) -> tf.data.Dataset:
    """Batches for pretraining on masked tokens and next sentences, ready for `fit`.

    A row is `[CLS] A [SEP] B [SEP]`, padded. Every epoch has new pairs (`make_pairs`), a new order
    and new masks (`mask_tokens`), all determined by `seed`: the same call gives the same batches in
    every process, and with `first_step=k` those that would follow the first k.

    All epochs have as many steps as epoch 0; `cardinality()` of the dataset with `epochs=1` tells
    how many. A later epoch, whose pairs are cut anew and may be a few more or fewer, leaves out the
    surplus, or repeats some with other masks.

    Args:
        corpus_or_store: The text. A corpus is tokenised at the first use and kept on disk.
        tokenizer: For a store, the one it was made with.
        batch_size: Rows in a batch, B.
        max_len: Length of a row, T.
        num_predictions: P. None: `round(0.15 * max_len)`, enough for a full row.
        seed: A non-negative integer.
        epochs: Passes over the text, one after another. None: without end.
        first_step: Step to begin with, counted over all epochs; for going on after a stop.
        split: `"train"` or `"held_out"` for a part of the documents, None for all. The held-out
            documents are those whose hashes are smallest: the same ones in any order of the
            corpus, and equal documents are on the same side.
        held_out: Share of documents held out, in (0, 1); at least two are on each side.
        drop_remainder: Whether the rows that do not fill a batch are left out. False, for
            evaluation: they come in a last batch filled up with empty rows of weight 0, so that
            epoch 0 holds every pair once and weighted metrics over it are exact.
        cache_dir: Folder for the stores of corpora. None: `keras_bert_d2l` in the user's cache
            folder, which is `$XDG_CACHE_HOME` or `~/.cache`.

    Returns: a dataset of `(features, labels, weights)` with static shapes:
        features `tokens (B, T)`, `segments (B, T)`, `valid_lens (B,)`, `pred_positions (B, P)`,
        int32; labels `mlm (B, P)` and `nsp (B,)`, int32; weights `mlm (B, P)` and `nsp (B,)`,
        float32.

    Raises:
        ValueError: An argument is out of its range, the text has too few documents or too few
            pairs, or the store was made with another vocabulary.
        OSError: The text cannot be read or the cache folder cannot be written.
    """
    if num_predictions is None:
        num_predictions = max(1, round(PREDICTED * max_len))
    _check_arguments(batch_size, max_len, num_predictions, seed, epochs, first_step)
    store = _store(corpus_or_store, tokenizer, cache_dir)
    documents = split_documents(store.document_hashes, split, held_out)
    plan = _Plan(store, documents, max_len, batch_size, seed, drop_remainder)
    steps = plan.num_steps()
    if epochs is not None and first_step > epochs * steps:
        raise ValueError(
            f"`first_step` must be at most {epochs * steps}: {epochs} epochs of {steps} steps. "
            f"Received: first_step={first_step}."
        )
    first_epoch, first_in_epoch = divmod(first_step, steps)
    last_epoch = tf.int64.max if epochs is None else epochs
    cardinality = tf.data.INFINITE_CARDINALITY if epochs is None else epochs * steps - first_step
    stored = np.asarray(store.tokens)  # without the overhead of indexing a memmap

    def epoch_plan(epoch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        pairs, seeds = tf.numpy_function(plan.of_epoch, [epoch, steps], [tf.int64, tf.int32])
        return pairs, seeds, tf.where(epoch == first_epoch, first_in_epoch, 0)

    def steps_of(pairs: tf.Tensor, seeds: tf.Tensor, first: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.range(tf.cast(first, tf.int64), steps).map(
            lambda step: (pairs[step * batch_size : (step + 1) * batch_size], seeds[step])
        )

    def batch(pairs: tf.Tensor, mask_seed: tf.Tensor) -> tuple[dict, dict, dict]:
        pairs = tf.ensure_shape(pairs, (batch_size, 5))
        return _batch(pairs, mask_seed, stored, tokenizer.vocab, max_len, num_predictions)

    return (
        tf.data.Dataset.range(first_epoch, last_epoch)
        .map(epoch_plan)
        .flat_map(steps_of)
        .map(batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .apply(tf.data.experimental.assert_cardinality(cardinality))
        .prefetch(tf.data.AUTOTUNE)
    )


def split_documents(hashes: np.ndarray, split: str | None, held_out: float) -> np.ndarray:
    """The documents of one part of the text.

    Args:
        hashes: uint64 `(N,)`, `TokenStore.document_hashes`.
        split: `"train"`, `"held_out"` or None for all.
        held_out: Share of documents held out, in (0, 1).

    Returns: indices of documents, ascending. The held-out ones have the smallest hashes.

    Raises:
        ValueError: An argument is out of its range, or a part would have fewer than two documents.
    """
    if split is None:
        return np.arange(len(hashes))
    if split not in ("train", "held_out"):
        raise ValueError(f"`split` must be 'train', 'held_out' or None. Received: split={split!r}.")
    if not 0 < held_out < 1:
        raise ValueError(f"`held_out` must be between 0 and 1. Received: held_out={held_out!r}.")
    count = min(max(2, round(held_out * len(hashes))), len(hashes) - 2)
    is_held_out = hashes <= np.sort(hashes)[max(count, 1) - 1]  # equal documents stay together
    if min(is_held_out.sum(), (~is_held_out).sum()) < 2:
        raise ValueError(
            "Holding documents out needs at least two different ones on each side, because false "
            f"pairs are made of two. Received: {len(hashes)} documents, "
            f"{len(np.unique(hashes))} of them different. Use `split=None` or more text."
        )
    return np.flatnonzero(is_held_out == (split == "held_out"))


@dataclasses.dataclass(frozen=True)
class _Plan:
    """What each epoch consists of, as a function of the epoch alone."""

    store: TokenStore
    documents: np.ndarray
    max_len: int
    batch_size: int
    seed: int
    drop_remainder: bool

    def num_steps(self) -> int:
        """Batches in an epoch: those of epoch 0."""
        num_pairs = len(self._pairs(0))
        steps = num_pairs // self.batch_size
        if not self.drop_remainder and num_pairs % self.batch_size:
            steps += 1
        if not steps:
            raise ValueError(
                f"The text makes {num_pairs} pairs, fewer than one batch. Received: "
                f"batch_size={self.batch_size}. Use a smaller batch, more text or "
                "`drop_remainder=False`."
            )
        return steps

    def of_epoch(self, number: np.int64, num_steps: np.int64) -> tuple[np.ndarray, np.ndarray]:
        """The pairs of all rows, int64 `(steps * B, 5)`, and mask seeds, int32 `(steps, 2)`."""
        epoch, steps = int(number), int(num_steps)
        pairs = self._pairs(epoch)
        np.random.default_rng((self.seed, epoch, _ORDER_STREAM)).shuffle(pairs)
        missing = steps * self.batch_size - len(pairs)
        if missing > 0:
            shape = (missing, 5)
            filling = np.resize(pairs, shape) if self.drop_remainder else np.zeros(shape, np.int64)
            pairs = np.concatenate([pairs, filling])
        pairs = pairs[: steps * self.batch_size]
        seeds = np.random.SeedSequence((self.seed, epoch, _MASK_STREAM)).generate_state(2 * steps)
        return pairs, seeds.view(np.int32).reshape(steps, 2)

    def _pairs(self, epoch: int) -> np.ndarray:
        return make_pairs(
            self.store,
            max_len=self.max_len,
            seed=self.seed,
            epoch=epoch,
            documents=self.documents,
        )


def _batch(
    pairs: tf.Tensor,
    mask_seed: tf.Tensor,
    stored: np.ndarray,
    vocab: Vocab,
    max_len: int,
    num_predictions: int,
) -> tuple[dict, dict, dict]:
    """Features, labels and weights of pairs `(B, 5)`."""
    tokens, segments, valid_lens = _rows(pairs, stored, vocab, max_len)
    corrupted, pred_positions, mlm_labels, mlm_weights = mask_tokens(
        tokens,
        valid_lens,
        num_predictions=num_predictions,
        mask_id=vocab.mask_id,
        special_ids=vocab.special_ids,
        vocab_size=len(vocab),
        seed=mask_seed,
    )
    features = {
        "tokens": corrupted,
        "segments": segments,
        "valid_lens": valid_lens,
        "pred_positions": pred_positions,
    }
    is_pair = pairs[:, 3] > pairs[:, 2]  # the rows that fill up a last batch are empty
    labels = {"mlm": mlm_labels, "nsp": tf.cast(pairs[:, 4], tf.int32)}
    weights = {"mlm": mlm_weights, "nsp": tf.cast(is_pair, tf.float32)}
    return features, labels, weights


def _rows(
    pairs: tf.Tensor, stored: np.ndarray, vocab: Vocab, max_len: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Lays pairs `(B, 5)` out as rows: tokens `(B, T)`, segments `(B, T)`, valid_lens `(B,)`."""
    a_start, a_end, b_start, b_end, _ = tf.unstack(pairs[:, :, None], axis=1)  # (B, 1) each
    first_sep = a_end - a_start + 1
    second_sep = b_end - b_start + first_sep + 1
    position = tf.range(max_len, dtype=tf.int64)
    in_a = (position > 0) & (position < first_sep)
    in_b = (position > first_sep) & (position < second_sep)
    places = tf.where(in_a, a_start + position - 1, 0)
    places = tf.where(in_b, b_start + position - first_sep - 1, places)
    text = tf.numpy_function(lambda at: stored[at].astype(np.int32), [places], tf.int32)
    text = tf.ensure_shape(text, places.shape)
    special = tf.where(position <= second_sep, vocab.sep_id, vocab.pad_id)
    special = tf.where(position == 0, vocab.cls_id, special)
    tokens = tf.where(in_a | in_b, text, special)
    segments = (position > first_sep) & (position <= second_sep)
    return tokens, tf.cast(segments, tf.int32), tf.cast(second_sep[:, 0] + 1, tf.int32)


def _store(
    corpus_or_store: Any, tokenizer: Tokenizer, cache_dir: str | os.PathLike[str] | None
) -> TokenStore:
    if isinstance(corpus_or_store, TokenStore):
        corpus_or_store.check_tokenizer(tokenizer)
        return corpus_or_store
    if isinstance(corpus_or_store, str | os.PathLike):
        raise ValueError(
            "A corpus or a token store is expected, not a path. Received: "
            f"{os.fspath(corpus_or_store)!r}. Open it first, with `Corpus.open` or "
            "`TokenStore.open`."
        )
    return cached_store(corpus_or_store, tokenizer, cache_dir)


def _check_arguments(
    batch_size: int,
    max_len: int,
    num_predictions: int,
    seed: int,
    epochs: int | None,
    first_step: int,
) -> None:
    for name, value in (("batch_size", batch_size), ("epochs", 1 if epochs is None else epochs)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1. Received: {name}={value}.")
    for name, value in (("seed", seed), ("first_step", first_step)):
        if value < 0:
            raise ValueError(f"`{name}` must not be negative. Received: {name}={value}.")
    if not 1 <= num_predictions <= max_len:
        raise ValueError(
            f"`num_predictions` must be between 1 and max_len={max_len}. Received: "
            f"num_predictions={num_predictions}."
        )
