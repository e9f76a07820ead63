"""The pretraining pipeline: a corpus or a token store in, batches for `fit` out.

B: batch size, T: tokens in a row, P: predicted positions, E: examples in a packed row.
"""

import os
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert_d2l.data.pretraining.epochs import Reader
from keras_bert_d2l.data.pretraining.masking import Masking, mask_tokens
from keras_bert_d2l.data.pretraining.packing import ROWS
from keras_bert_d2l.data.pretraining.pairs import OBJECTIVES
from keras_bert_d2l.data.store.building import cached_store
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.text.corpus.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab.vocab import Vocab

# Made in one go: TensorFlow's small operations, and its steps from stage to stage, cost more to
# start than to run.
_ROWS_TOGETHER = 1024
_PACKED_FEATURES = ("example_ids", "position_ids", "cls_positions")


def pretraining_dataset(
    corpus_or_store: Corpus | TokenStore,
    tokenizer: Tokenizer,
    *,
    batch_size: int,
    max_len: int = 128,
    num_predictions: int | None = None,
    masking: str | Masking = "token",
    objective: str = "nsp",
    short_seq_prob: float = 0.0,
    cross_documents: bool = False,
    rows: str = "padded",
    max_examples: int = 8,
    seed: int = 0,
    epochs: int | None = 1,
    first_step: int = 0,
    shard: tuple[int, int] = (0, 1),
    split: str | None = None,
    held_out: float = 0.05,
    drop_remainder: bool = True,
    cache_dir: str | os.PathLike[str] | None = None,
) -> tf.data.Dataset:
    """Batches for pretraining on masked tokens and next sentences, ready for `fit`.

    A row is `[CLS] A [SEP] B [SEP]`, padded. Every epoch has new pairs (`make_pairs`), a new order
    and new masks (`mask_tokens`), all determined by `seed`: row i of an epoch is the same in every
    process, for any batch size and number of shards, and with `first_step=k` the batches are those
    that would follow the first k. Beginning late costs no more than beginning.

    All epochs have as many steps as epoch 0; `cardinality()` of the dataset with `epochs=1` tells
    how many. A later epoch, whose pairs are cut anew and may be a few more or fewer, leaves out the
    surplus, or repeats some with other masks.

    BERT trains in two phases, nine steps in ten on short rows: make a dataset with `max_len=128`
    for the first phase and one with `max_len=512` and another `seed` for the second.

    Args:
        corpus_or_store: The text. A corpus is tokenised at the first use and kept on disk.
        tokenizer: For a store, the one it was made with.
        batch_size: Rows in a batch, B.
        max_len: Length of a row, T.
        num_predictions: P. None: enough for a full row, `masking.num_predictions(max_len)`; that is
            `round(0.15 * max_len)` by default.
        masking: A strategy, `"token"`, `"whole_word"`, `"ngram"` or `"span"`; or a `Masking` with
            rates and the rest.
        objective: `"nsp"`: next-sentence prediction (BERT). `"sop"`: sentence order, B before A
            half of the time (ALBERT). `"none"`: masked tokens alone, rows of full sentences
            (RoBERTa); segments are all 0, and labels and weights hold `mlm` alone.
        short_seq_prob: Share of the examples that are made shorter than `max_len`, by a random
            length; google's BERT takes 0.1.
        cross_documents: For the objective `"none"`: whether a row goes on with the next document
            where one ends.
        rows: `"padded"`: an example in each row. `"packed"`: several examples in one row wherever
            they fit, for a model that keeps them apart. `"bucketed"`: rows of about one length in
            a batch, and T the longest of them, rounded up to a multiple of 8.
        max_examples: E, for packed rows.
        seed: A non-negative integer.
        epochs: Passes over the text, one after another. None: without end.
        first_step: Step to begin with, counted over all epochs; for going on after a stop.
        shard: `(index, count)`: this is worker `index` of `count`, and takes its `batch_size` rows
            of every step; side by side, the batches of all workers are those of one worker with a
            batch `count` times as large.
        split: `"train"` or `"held_out"` for a part of the documents, None for all. The held-out
            documents are those whose hashes are smallest: the same ones in any order of the
            corpus, and equal documents are on the same side.
        held_out: Share of documents held out, in (0, 1); at least two are on each side.
        drop_remainder: Whether the rows that do not fill a batch are left out. False, for
            evaluation: they come in a last batch filled up with empty rows of weight 0, so that
            epoch 0 holds every example once and weighted metrics over it are exact.
        cache_dir: Folder for the stores of corpora. None: `keras_bert_d2l` in the user's cache
            folder, which is `$XDG_CACHE_HOME` or `~/.cache`.

    Returns: a dataset of `(features, labels, weights)` with static shapes, but for the T of
        bucketed rows: features `tokens (B, T)`, `segments (B, T)`, `valid_lens (B,)`,
        `pred_positions (B, P)`, int32; labels `mlm (B, P)` and `nsp (B,)`, int32; weights
        `mlm (B, P)` and `nsp (B,)`, float32. Packed rows have the features `example_ids (B, T)`,
        which are 1, 2, ... for the examples and 0 for padding, `position_ids (B, T)` and
        `cls_positions (B, E)` too, and `nsp` is `(B, E)`, with weight 0 where there are fewer
        examples than E. Their predictions are 15 % of the row and not of each example.

    Raises:
        ValueError: An argument is out of its range, the text has too few documents or too few
            examples, or the store was made with another vocabulary.
        OSError: The text cannot be read or the cache folder cannot be written.
    """
    if isinstance(masking, str):
        masking = Masking(masking)
    if num_predictions is None:
        num_predictions = masking.num_predictions(max_len)
    _check_arguments(batch_size, max_len, num_predictions, seed, epochs, first_step)
    _check_choices(objective, cross_documents, short_seq_prob, rows, max_examples, shard)
    store = _store(corpus_or_store, tokenizer, cache_dir)
    reader = Reader(
        store=store,
        stored=np.asarray(store.tokens),  # without the overhead of indexing a memmap
        vocab=tokenizer.vocab,
        documents=split_documents(store.document_hashes, split, held_out),
        objective=objective,
        short_seq_prob=short_seq_prob,
        cross_documents=cross_documents,
        max_len=max_len,
        rows=rows,
        max_examples=max_examples if rows == "packed" else 1,
        batch_size=batch_size,
        shard=shard,
        seed=seed,
        drop_remainder=drop_remainder,
    )
    if epochs is None:
        last, cardinality = tf.int64.max, tf.data.INFINITE_CARDINALITY
    else:
        last = epochs * reader.num_steps
        cardinality = last - first_step
        if cardinality < 0:
            raise ValueError(
                f"`first_step` must be at most {last}: {epochs} epochs of {reader.num_steps} "
                f"steps. Received: first_step={first_step}."
            )
    length = None if rows == "bucketed" else max_len
    arrays: list[tuple[tf.DType, tuple[int | None, ...]]] = [
        (tf.int64, ()),
        (tf.int32, (length,)),
        (tf.int32, (length,)),
        (tf.int32, ()),
        (tf.int32, (reader.max_examples,)),
        (tf.float32, (reader.max_examples,)),
    ]
    if rows == "packed":
        arrays += [(tf.int32, (max_len,)), (tf.int32, (max_len,)), (tf.int32, (max_examples,))]
    together = 1 if rows == "bucketed" else max(1, _ROWS_TOGETHER // batch_size)

    @tf.autograph.experimental.do_not_convert  # nothing to convert: it would only take time
    def batches(step: tf.Tensor) -> tuple[dict, dict, dict]:
        """The batches of the steps from `step` on, each tensor `(number of steps, B, ...)`."""
        read = tf.numpy_function(
            reader.read, [step, tf.minimum(step + together, last)], [dtype for dtype, _ in arrays]
        )
        for tensor, (_, shape) in zip(read, arrays, strict=True):
            tensor.set_shape((None, *shape))
        batch = _batch(read, tokenizer.vocab, masking, num_predictions, objective)
        return tf.nest.map_structure(lambda rows: _by_step(rows, batch_size), batch)

    return (
        tf.data.Dataset.range(first_step, last, together)
        .map(batches, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .unbatch()
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


def _batch(
    read: list[tf.Tensor],
    vocab: Vocab,
    masking: Masking,
    num_predictions: int,
    objective: str,
) -> tuple[dict, dict, dict]:
    """Features, labels and weights of what `Reader.read` returns."""
    keys, tokens, segments, valid_lens, nsp_labels, nsp_weights, *packed = read
    corrupted, pred_positions, mlm_labels, mlm_weights = mask_tokens(
        tokens, valid_lens, keys, vocab=vocab, masking=masking, num_predictions=num_predictions
    )
    features = {
        "tokens": corrupted,
        "segments": segments,
        "valid_lens": valid_lens,
        "pred_positions": pred_positions,
    }
    labels, weights = {"mlm": mlm_labels}, {"mlm": mlm_weights}
    if packed:
        features.update(zip(_PACKED_FEATURES, packed, strict=True))
    else:
        nsp_labels, nsp_weights = nsp_labels[:, 0], nsp_weights[:, 0]
    if objective == "none":
        features.pop("cls_positions", None)  # nobody asks for the meaning of the example
    else:
        labels["nsp"], weights["nsp"] = nsp_labels, nsp_weights
    return features, labels, weights


def _by_step(rows: tf.Tensor, batch_size: int) -> tf.Tensor:
    """`(steps * B, ...)` as `(steps, B, ...)`."""
    shape = tf.concat([[-1, batch_size], tf.shape(rows)[1:]], 0)
    return tf.ensure_shape(tf.reshape(rows, shape), (None, batch_size, *rows.shape[1:]))


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


def _check_choices(
    objective: str,
    cross_documents: bool,
    short_seq_prob: float,
    rows: str,
    max_examples: int,
    shard: tuple[int, int],
) -> None:
    for name, value, names in (("objective", objective, OBJECTIVES), ("rows", rows, ROWS)):
        if value not in names:
            raise ValueError(
                f"`{name}` must be one of {', '.join(map(repr, names))}. Received: "
                f"{name}={value!r}."
            )
    if cross_documents and objective != "none":
        raise ValueError(
            "`cross_documents` is for objective='none': a pair of texts ends with its documents. "
            f"Received: objective={objective!r}."
        )
    if not 0 <= short_seq_prob <= 1:
        raise ValueError(
            f"`short_seq_prob` must be between 0 and 1. Received: short_seq_prob={short_seq_prob}."
        )
    if max_examples < 1:
        raise ValueError(
            f"`max_examples` must be at least 1. Received: max_examples={max_examples}."
        )
    if len(shard) != 2 or not 0 <= shard[0] < shard[1]:
        raise ValueError(
            "`shard` must be (index, count) with an index from 0 to count - 1. Received: "
            f"shard={shard!r}."
        )
