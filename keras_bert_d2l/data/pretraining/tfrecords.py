"""Pretraining examples in the TFRecord files of google's BERT: read as batches, and written.

google-research/bert's create_pretraining_data.py writes them and run_pretraining.py reads them, as
the Model Garden's scripts do, which have new names for two of the features. The masks in such a
file are the same in every epoch.

B: batch size, T: tokens in a row, P: predicted positions.
"""

import contextlib
import glob
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from keras_bert_d2l.data.pretraining.dataset import pretraining_dataset
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.files import replacing_file
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

_TOKENS, _SEGMENTS, _MASK = "input_ids", "segment_ids", "input_mask"
_POSITIONS, _IDS, _WEIGHTS = "masked_lm_positions", "masked_lm_ids", "masked_lm_weights"
_NEXT = "next_sentence_labels"  # 0: B is the next sentence, 1: it is not; ours are the reverse
_NEW_NAMES = {_TOKENS: "input_word_ids", _SEGMENTS: "input_type_ids"}  # the Model Garden's
_SHUFFLED = 10_000  # examples in the buffer
_FILES_AT_ONCE = 8  # when they are shuffled
_WRITTEN_AT_ONCE = 64

AnyPath = str | os.PathLike[str]


def read_tfrecords(
    source: AnyPath | Sequence[AnyPath],
    *,
    batch_size: int,
    vocab_size: int,
    epochs: int | None = 1,
    seed: int | None = None,
    drop_remainder: bool = True,
) -> tf.data.Dataset:
    """Batches for `fit` from pretraining examples that google's or the Model Garden's script wrote.

    Lengths T and P are those of the first example; all have to be alike. Files without
    next-sentence labels give batches without `nsp`.

    Args:
        source: A file, a pattern such as `"examples/*.tfrecord"`, or a list of these.
        batch_size: Rows in a batch, B.
        vocab_size: Size of the vocabulary that the files were made with. An id that is not below
            it ends the reading with an error.
        epochs: Passes over the files. None: without end.
        seed: None: in the order of the files. A number: in a random order that it determines, of
            the files and, as far as a buffer of 10,000 goes, of the examples.
        drop_remainder: Whether the rows that do not fill a batch are left out.

    Returns: a dataset of `(features, labels, weights)`:
        features `tokens (B, T)`, `segments (B, T)`, `valid_lens (B,)`, `pred_positions (B, P)`,
        int32; labels `mlm (B, P)` and `nsp (B,)`, int32, 1 where B is the next sentence; weights
        `mlm (B, P)` and `nsp (B,)`, float32.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A file holds no such examples, or `batch_size` is too small.
    """
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be at least 1. Received: batch_size={batch_size}.")
    paths = _paths(source)
    features = _features(paths[0])
    examples = tf.data.TFRecordDataset(paths)
    if seed is not None:
        files = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths), seed=seed)
        examples = files.interleave(tf.data.TFRecordDataset, cycle_length=_FILES_AT_ONCE)
        examples = examples.shuffle(_SHUFFLED, seed=seed)
    return (
        examples.repeat(-1 if epochs is None else epochs)
        .batch(batch_size, drop_remainder=drop_remainder)
        .map(lambda batch: _parse(batch, features, vocab_size), num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )


def write_tfrecords(
    store: TokenStore,
    tokenizer: Tokenizer,
    path: AnyPath,
    *,
    dupe_factor: int = 10,
    seed: int = 0,
    **options: Any,
) -> int:
    """Writes pretraining examples with masks that stay as they are, for other programs.

    The file is what google-research/bert's create_pretraining_data.py would write. It appears when
    it is whole. The examples are shuffled within each pass over the text.

    Args:
        store: The tokenised corpus.
        tokenizer: The one it was made with.
        path: The file.
        dupe_factor: Passes over the text, each with other pairs and other masks.
        seed: A non-negative integer. Pass k holds the examples that
            `pretraining_dataset(seed=seed + k)` has in an epoch.
        **options: Further arguments of `pretraining_dataset` that say what an example is, such as
            `max_len`, `num_predictions`, `split` and `held_out`.

    Returns: the number of examples.

    Raises:
        ValueError: An option is out of its range, or such examples cannot be expressed.
        OSError: The file cannot be written, or the disk is full.
    """
    if dupe_factor < 1:
        raise ValueError(f"`dupe_factor` must be at least 1. Received: dupe_factor={dupe_factor}.")
    num_examples = 0
    with (
        _explained(path),
        replacing_file(path) as temporary,
        tf.io.TFRecordWriter(os.fspath(temporary)) as writer,
    ):
        for number in range(dupe_factor):
            for example in _examples(store, tokenizer, seed + number, options):
                writer.write(example.SerializeToString())
                num_examples += 1
    return num_examples


def _paths(source: AnyPath | Sequence[AnyPath]) -> list[str]:
    names = [source] if isinstance(source, str | os.PathLike) else list(source)
    paths: list[str] = []
    for name in [os.fspath(name) for name in names]:
        found = [name] if os.path.isfile(name) else sorted(glob.glob(name))
        if not found:
            raise FileNotFoundError(f"There is no file {name!r}, and none matches it as a pattern.")
        paths += found
    if not paths:
        raise ValueError("`source` must name a file. Received: an empty list.")
    return paths


def _features(path: str) -> dict[str, tuple[str, tf.io.FixedLenFeature]]:
    """For each of google's names the name in the file and the length, from the first example."""
    example = tf.train.Example()
    try:
        for record in tf.data.TFRecordDataset(path).take(1):
            example.ParseFromString(record.numpy())
    except (tf.errors.DataLossError, DecodeError) as error:
        raise ValueError(
            f"{path!r} is no TFRecord file of examples, or damaged: {error}"
        ) from error
    found = example.features.feature
    features = {}
    for name in (_TOKENS, _MASK, _SEGMENTS, _POSITIONS, _IDS, _WEIGHTS, _NEXT):
        stored = name if name in found else _NEW_NAMES.get(name, name)
        if stored in found:
            kind = "float_list" if name == _WEIGHTS else "int64_list"
            length = len(getattr(found[stored], kind).value)
            dtype = tf.float32 if name == _WEIGHTS else tf.int64
            features[name] = stored, tf.io.FixedLenFeature((length,), dtype)
        elif name != _NEXT:
            raise ValueError(
                f"{path!r} must hold pretraining examples with the features of google's BERT. "
                f"Received: no {name!r} in the first example, but {sorted(found) or 'nothing'}."
            )
    return features


def _parse(
    batch: tf.Tensor, features: dict[str, tuple[str, tf.io.FixedLenFeature]], vocab_size: int
) -> tuple[dict, dict, dict]:
    parsed = tf.io.parse_example(batch, dict(features.values()))
    found = {name: tf.cast(parsed[stored], tf.int32) for name, (stored, _) in features.items()}
    weights = parsed[features[_WEIGHTS][0]]
    valid_lens = tf.reduce_sum(found[_MASK], axis=1)
    num_tokens = found[_TOKENS].shape[1]
    for name, limit in ((_TOKENS, vocab_size), (_IDS, vocab_size), (_POSITIONS, num_tokens)):
        is_inside = tf.reduce_all((found[name] >= 0) & (found[name] < limit))
        tf.debugging.Assert(is_inside, [f"{name} must be from 0 to {limit - 1}"])
    is_padding_last = tf.sequence_mask(valid_lens, num_tokens, tf.int32) == found[_MASK]
    tf.debugging.Assert(tf.reduce_all(is_padding_last), [f"{_MASK} must be ones and then zeros"])
    labels = {"mlm": found[_IDS]}
    label_weights = {"mlm": weights}
    if _NEXT in found:
        labels["nsp"] = 1 - found[_NEXT][:, 0]
        label_weights["nsp"] = tf.ones_like(labels["nsp"], tf.float32)
    inputs = {
        "tokens": found[_TOKENS],
        "segments": found[_SEGMENTS],
        "valid_lens": valid_lens,
        "pred_positions": found[_POSITIONS],
    }
    return inputs, labels, label_weights


def _examples(
    store: TokenStore, tokenizer: Tokenizer, seed: int, options: dict[str, Any]
) -> Iterator[tf.train.Example]:
    """The examples of one pass over the text."""
    batches = pretraining_dataset(
        store,
        tokenizer,
        batch_size=_WRITTEN_AT_ONCE,
        seed=seed,
        epochs=1,
        drop_remainder=False,
        **options,
    )
    for features, labels, weights in batches.as_numpy_iterator():
        if features.keys() != {"tokens", "segments", "valid_lens", "pred_positions"}:
            raise ValueError(
                "The TFRecord files of google's BERT hold one example in a row. Received: options "
                f"that make rows with {', '.join(features)}; use none for packing."
            )
        is_real = np.arange(features["tokens"].shape[1]) < features["valid_lens"][:, None]
        columns = {
            _TOKENS: features["tokens"],
            _MASK: is_real.astype(np.int64),
            _SEGMENTS: features["segments"],
            _POSITIONS: features["pred_positions"],
            _IDS: labels["mlm"],
            _WEIGHTS: weights["mlm"],
        }
        if "nsp" in labels:
            columns[_NEXT] = 1 - labels["nsp"][:, None]
        # The rows that fill up the last batch have nothing to predict.
        for row in np.flatnonzero(weights["mlm"].any(axis=1)):
            yield _example({name: column[row] for name, column in columns.items()})


def _example(values: dict[str, np.ndarray]) -> tf.train.Example:
    example = tf.train.Example()
    for name, value in values.items():
        feature = example.features.feature[name]
        kind = feature.float_list if name == _WEIGHTS else feature.int64_list
        kind.value.extend(value.tolist())
    return example


@contextlib.contextmanager
def _explained(path: AnyPath) -> Iterator[None]:
    """Turns TensorFlow's errors of writing into Python's."""
    try:
        yield
    except tf.errors.OpError as error:
        raise OSError(
            f"Could not write {os.fspath(path)!r}: {error.message}. Needed are a folder with write "
            "permission and free space."
        ) from error
