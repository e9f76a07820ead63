"""Encode task examples as token ids and label ids without padding, the fields of `TaskRows`.

N: examples, R: rows (a long context gives several rows per example), B: texts tokenized together,
T: tokens per row, C: labels.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from keras_bert_d2l.checks import check_labels, shown, shown_names
from keras_bert_d2l.contract.registry import task_named
from keras_bert_d2l.contract.task import EncodingOptions
from keras_bert_d2l.data.tasks.examples import Label, TaskExamples, how_many, names_of
from keras_bert_d2l.data.tasks.texts import TextExamples
from keras_bert_d2l.text.tokenizer import framing
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

Fields: TypeAlias = dict[str, Any]
"""Keyword arguments of `TaskRows`."""


TEXTS_TOGETHER = 4096


def encoded_texts(
    examples: "TextExamples", tokenizer: Tokenizer, options: EncodingOptions
) -> Fields:
    """Encode texts or pairs, one row each."""
    sides = [side for side in (examples.texts, examples.texts_b) if side is not None]
    vocab = tokenizer.vocab
    framing.check_max_len(options.max_len, len(sides), vocab)
    names, ids = names_and_ids(examples, options.labels)

    def in_part(chosen: slice) -> tuple[tf.Tensor, ...]:
        texts = [tokenizer.tokenize(tf.constant(side[chosen])) for side in sides]
        batch = tokenizer.frame(*texts, max_len=options.max_len)
        full_lengths = tf.add_n([side.row_lengths() for side in texts])
        return (*unpadded(batch), full_lengths)

    tokens, lengths, seconds, full_lengths = in_parts(in_part, len(examples), TEXTS_TOGETHER)
    full_lengths += vocab.num_added(len(sides))
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
    is_multi = examples.multi_label
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
    is_token = tf.sequence_mask(lengths, tf.shape(batch["tokens"])[1])
    return tf.boolean_mask(batch["tokens"], is_token), lengths, seconds


def splits(lengths: np.ndarray) -> np.ndarray:
    """Return the start of each row in the concatenated rows, and the end of the last row."""
    return np.append(0, np.cumsum(lengths, dtype=np.int64))


def check_label_names(
    examples: TaskExamples, labels: Sequence[str] | None, at_least: int
) -> tuple[str, ...]:
    """Return the label names of a model, after checking the examples against them.

    Args:
        examples: Examples with labels.
        labels: The names; by default those of the examples.
        at_least: The minimum number of names.

    Raises:
        ValueError: There are too few names, a name is repeated, or an example has an unknown
            label.
    """
    names = examples.label_names if labels is None else check_labels(labels, at_least)
    source = f"{examples.source!r} has" if examples.source else "the examples have"
    if len(names) < at_least:
        found = f"only one label, {shown(names[0])}" if names else "none"
        raise ValueError(
            f"There must be at least {at_least} different labels. Received: {source} {found}. "
            "Check that this is the right column."
        )
    counts = examples.label_counts()
    unseen = sorted(set(counts) - set(names))
    if unseen:
        labels_of = getattr(examples, examples.sequences[-1])
        first = next(
            name
            for name, label in zip(examples.ids, labels_of, strict=True)
            if not set(unseen).isdisjoint(names_of(label))
        )
        raise ValueError(
            f"The model's labels are {shown_names(names)}. Received: {source} "
            f"{shown_names(unseen)} as well "
            f"({how_many(sum(counts[name] for name in unseen), 'time')}), first in example "
            f"{shown(first)}. Train on examples of every label, remove the unknown labels, or "
            "spell them alike in all files."
        )
    return names


def label_ids(examples: TaskExamples, names: Sequence[str]) -> np.ndarray:
    """Return the ids of the labels.

    Returns:
        int32 `(N,)`; for multi-label texts, multi-hot `(N, C)`; for words, the ids of the words of
        all texts, concatenated.
    """
    ids: dict[Label, int] = {name: number for number, name in enumerate(names)}
    labels = examples.label_values()
    if not examples.multi_label:
        return np.array([ids[label] for label in labels], np.int32)
    multi_hot: np.ndarray = np.zeros((len(examples), len(names)), np.int32)
    for row, label in zip(multi_hot, labels, strict=True):
        row[[ids[name] for name in names_of(label)]] = 1
    return multi_hot
