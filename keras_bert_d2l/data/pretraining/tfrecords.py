"""Read the TFRecord files of pretraining examples that Google's BERT uses.

In google-research/bert, create_pretraining_data.py writes them and run_pretraining.py reads them.
The Model Garden's scripts use the same format, with different names for two of the features. The
masks are part of the file, so they are the same in every epoch.

B: batch size, T: tokens per row, P: predicted positions per row.
"""

import glob
import os
from collections.abc import Sequence
from typing import cast

import tensorflow as tf
from google.protobuf.message import DecodeError

from keras_bert_d2l.checks import check_bool, check_integer, check_path, check_range, shown
from keras_bert_d2l.data.pretraining.masking import Batch
from keras_bert_d2l.reading import check_file
from keras_bert_d2l.types import PathLike

_TOKENS, _SEGMENTS, _MASK = "input_ids", "segment_ids", "input_mask"
_POSITIONS, _IDS, _WEIGHTS = "masked_lm_positions", "masked_lm_ids", "masked_lm_weights"
_NEXT = "next_sentence_labels"  # 0: B is the next sentence, 1: it is not; our labels are reversed
_NEW_NAMES = {_TOKENS: "input_word_ids", _SEGMENTS: "input_type_ids"}  # in the Model Garden
_SHUFFLED = 10_000  # examples in the shuffle buffer
_FILES_AT_ONCE = 8  # number of files interleaved when shuffling

_Features = dict[str, tuple[str, tf.io.FixedLenFeature]]


def read_tfrecords(
    source: PathLike | Sequence[PathLike],
    *,
    batch_size: int,
    vocab_size: int,
    epochs: int | None = 1,
    seed: int | None = None,
    drop_remainder: bool = True,
) -> tf.data.Dataset:
    r"""Read batches for `fit` from the TFRecord files of Google's or the Model Garden's script.

    T and P are taken from the first example and must be the same in all examples. Files without
    next-sentence labels give batches without `nsp`.

    Args:
        source: A file, a pattern such as `"examples/*.tfrecord"`, or a list of these.
        batch_size: Rows per batch, B.
        vocab_size: Size of the vocabulary the files were made with. Reading fails if an id is
            outside the vocabulary.
        epochs: Passes over the files. None: endless.
        seed: None: keep the order of the files. A number: random seed for shuffling the files, and
            the examples within a buffer of 10,000.
        drop_remainder: Whether to drop the rows that do not fill a batch.

    Returns:
        A dataset of `(features, labels, weights)`. Features: `tokens (B, T)`, `segments (B, T)`,
        `valid_lens (B,)` and `pred_positions (B, P)`, int32. Labels: `mlm (B, P)` and `nsp (B,)`,
        int32, where 1 means that B is the next sentence. Weights: `mlm (B, P)` and `nsp (B,)`,
        float32.

    Raises:
        FileNotFoundError: A file does not exist.
        ValueError: A file does not contain such examples, or `batch_size` is too small.

    Example:
        >>> import keras_bert_d2l as kb
        >>> import tensorflow as tf
        >>> example = tf.train.Example()
        >>> for name, values in {
        ...     "input_ids": [2, 7, 4, 3],
        ...     "input_mask": [1, 1, 1, 1],
        ...     "segment_ids": [0, 0, 0, 0],
        ...     "masked_lm_positions": [2],
        ...     "masked_lm_ids": [8],
        ... }.items():
        ...     example.features.feature[name].int64_list.value.extend(values)
        >>> example.features.feature["masked_lm_weights"].float_list.value.append(1.0)
        >>> with tf.io.TFRecordWriter("pets.tfrecord") as writer:
        ...     writer.write(example.SerializeToString())
        >>> dataset = kb.read_tfrecords("*.tfrecord", batch_size=1, vocab_size=10)
        >>> features, labels, weights = next(iter(dataset))
        >>> features["tokens"].numpy().tolist(), labels["mlm"].numpy().tolist()
        ([[2, 7, 4, 3]], [[8]])
    """
    check_integer("batch_size", batch_size, 1)
    check_integer("vocab_size", vocab_size, 1)
    check_integer("epochs", 1 if epochs is None else epochs, 1)
    check_integer("seed", 0 if seed is None else seed, 0)
    check_bool("drop_remainder", drop_remainder)
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


def _paths(source: PathLike | Sequence[PathLike]) -> list[str]:
    paths: list[str] = []
    for item in source if isinstance(source, list | tuple) else [source]:
        check_path("source", item)
        name = os.fspath(cast(PathLike, item))
        found = [name] if os.path.isfile(name) else sorted(glob.glob(name))
        if not found:
            raise FileNotFoundError(f"There is no file {name!r}.")
        paths += [os.fspath(check_file(path)) for path in found]
    if not paths:
        raise ValueError("`source` must name at least one file. Received: an empty list.")
    return paths


def _features(path: str) -> _Features:
    """Return the stored name and the length of each of Google's features in the first example."""
    example = tf.train.Example()
    try:
        for record in tf.data.TFRecordDataset(path).take(1):
            example.ParseFromString(record.numpy())
    except (tf.errors.DataLossError, DecodeError) as error:
        raise ValueError(
            f"{path!r} is not a TFRecord file of examples, or it is damaged: {error}"
        ) from error
    found = example.features.feature
    features: _Features = {}
    for name in (_TOKENS, _MASK, _SEGMENTS, _POSITIONS, _IDS, _WEIGHTS, _NEXT):
        stored = name if name in found else _NEW_NAMES.get(name, name)
        if stored in found:
            kind = "float_list" if name == _WEIGHTS else "int64_list"
            length = len(getattr(found[stored], kind).value)
            dtype = tf.float32 if name == _WEIGHTS else tf.int64
            features[name] = stored, tf.io.FixedLenFeature((length,), dtype)
        elif name != _NEXT:
            raise ValueError(
                f"{path!r} must contain pretraining examples with the features of Google's BERT. "
                f"Received: no {name!r} in the first example, but "
                f"{shown(sorted(found) or 'nothing')}."
            )
    return features


def _parse(batch: tf.Tensor, features: _Features, vocab_size: int) -> Batch:
    parsed = tf.io.parse_example(batch, dict(features.values()))
    found = {name: tf.cast(parsed[stored], tf.int32) for name, (stored, _) in features.items()}
    valid_lens = tf.reduce_sum(found[_MASK], axis=1)
    num_tokens = found[_TOKENS].shape[1]
    limits = {_TOKENS: vocab_size, _IDS: vocab_size, _POSITIONS: num_tokens, _SEGMENTS: 2, _NEXT: 2}
    for name in limits.keys() & found.keys():
        check_range(name, found[name], 0, limits[name] - 1)
    check_range(f"sum of {_MASK}", valid_lens, 1, num_tokens)
    is_padding_last = tf.sequence_mask(valid_lens, num_tokens, tf.int32) == found[_MASK]
    message = f"`{_MASK}` must be ones, then zeros. Received: other values."
    tf.debugging.Assert(tf.reduce_all(is_padding_last), [message])
    labels = {"mlm": found[_IDS]}
    weights = {"mlm": parsed[features[_WEIGHTS][0]]}
    if _NEXT in found:
        labels["nsp"] = 1 - found[_NEXT][:, 0]
        weights["nsp"] = tf.ones_like(labels["nsp"], tf.float32)
    inputs = {
        "tokens": found[_TOKENS],
        "segments": found[_SEGMENTS],
        "valid_lens": valid_lens,
        "pred_positions": found[_POSITIONS],
    }
    return inputs, labels, weights
