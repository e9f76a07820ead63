"""Encode task examples as token ids and label ids without padding, the fields of `TaskRows`.

N: examples, R: rows (a long context gives several rows per example), B: texts tokenized together,
T: tokens per row.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from keras_bert_d2l.data.tasks.examples import TaskExamples, TextExamples
from keras_bert_d2l.data.tasks.labels import check_label_names, label_ids
from keras_bert_d2l.tasks.task import task_named
from keras_bert_d2l.text.tokenizer.framing import ADDED_TO_ONE, ADDED_TO_PAIR, check_max_len, frame
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

Fields: TypeAlias = dict[str, Any]
"""Keyword arguments of `TaskRows`."""


TEXTS_TOGETHER = 4096


def encoded_texts(
    examples: TextExamples, tokenizer: Tokenizer, labels: Sequence[str] | None, max_len: int
) -> Fields:
    """Encode texts or pairs, one row each."""
    sides = [side for side in (examples.texts, examples.texts_b) if side is not None]
    check_max_len(max_len, len(sides))
    names, ids = names_and_ids(examples, labels)

    def in_part(chosen: slice) -> tuple[tf.Tensor, ...]:
        texts = [tokenizer.tokenize(tf.constant(side[chosen])) for side in sides]
        batch = frame(*texts, vocab=tokenizer.vocab, max_len=max_len)
        full_lengths = tf.add_n([side.row_lengths() for side in texts])
        return (*unpadded(batch), full_lengths)

    tokens, lengths, seconds, full_lengths = in_parts(in_part, len(examples), TEXTS_TOGETHER)
    full_lengths += ADDED_TO_PAIR if len(sides) == 2 else ADDED_TO_ONE
    return {
        "label_names": names,
        "tokens": tokens,
        "splits": splits(lengths),
        "seconds": seconds,
        "labels": ids,
        "examples": np.arange(len(lengths), dtype=np.int32),
        "full_lengths": full_lengths.astype(np.int32),
        "num_truncated": int((full_lengths > lengths).sum()),
    }


def names_and_ids(
    examples: TaskExamples, labels: Sequence[str] | None
) -> tuple[tuple[str, ...], np.ndarray | None]:
    """Return the label names, and the label ids or scores (None if unknown)."""
    if task_named(examples.task).has_scores:
        return (), np.asarray(examples.label_values(), np.float32) if examples.has_labels else None
    if not examples.has_labels:
        return tuple(labels or ()), None
    is_multi = getattr(examples, "multi_label", False)
    names = check_label_names(examples, labels, at_least=1 if is_multi else 2)
    return names, label_ids(examples, names)


def in_parts(
    part: Callable[[slice], Sequence[tf.Tensor | np.ndarray]], number: int, together: int
) -> tuple[np.ndarray, ...]:
    """Encode `number` texts or words, `together` at a time, and concatenate the arrays."""
    slices = (slice(first, first + together) for first in range(0, max(1, number), together))
    parts = [list(map(np.asarray, part(chosen))) for chosen in slices]
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def unpadded(batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return tokens without padding, the length of each row, and the start of its second text."""
    lengths = batch["valid_lens"]
    seconds = lengths - tf.reduce_sum(batch["segments"], axis=1)
    return _ragged(batch["tokens"], lengths), lengths, seconds


def _ragged(rows: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Return the values of rows `(B, T)` without their padding, concatenated."""
    return tf.boolean_mask(rows, tf.sequence_mask(lengths, tf.shape(rows)[1]))


def splits(lengths: np.ndarray) -> np.ndarray:
    """Return the start of each row in the concatenated rows, and the end of the last row."""
    return np.append(0, np.cumsum(lengths, dtype=np.int64))
