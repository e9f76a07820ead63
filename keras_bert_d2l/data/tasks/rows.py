"""`TaskRows`: token ids and label ids of examples, and batches of them.

The examples are tokenized once and stored without padding. The rows are shuffled in every epoch.

N: examples, R: rows (a long context or tagged text gives several), B: rows in a batch,
T: tokens in its longest row, C: labels.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from keras_bert_d2l.checks import (
    IGNORED,
    check_integer,
    check_labels,
    check_that,
    check_type,
    shown,
    shown_names,
)
from keras_bert_d2l.contract.task import EncodingOptions, task_named
from keras_bert_d2l.data.buckets import bucket
from keras_bert_d2l.data.tasks.examples import Label, TaskExamples, how_many, names_of
from keras_bert_d2l.data.tasks.texts import TextExamples
from keras_bert_d2l.text.tokenizer import framing
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

Fields: TypeAlias = dict[str, Any]
"""Keyword arguments of `TaskRows`."""

TEXTS_TOGETHER = 4096
_JAX_STEP = 32  # tokens; larger steps give fewer lengths to compile, and more padding


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TaskRows:
    """Token ids and label ids of examples, created by `TaskRows.encode`.

    Per-token values of all rows are concatenated: row r is the slice `[splits[r] : splits[r + 1]]`.

    Attributes:
        task: The name of the task.
        label_names: Names of the C labels in the order of their ids; empty for scores and answers.
        tokens: Token ids, `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, int32 `(splits[-1],)`.
        splits: int64 `(R + 1,)`.
        seconds: Position in each row at which the second text (segment 1) begins, or the length of
            the row if it has only one text, int32 `(R,)`.
        labels: None if they are unknown. Otherwise label ids, int32 `(R,)`; multi-hot labels, int32
            `(R, C)`, for multi-label texts; scores, float32 `(R,)`; the label of each token, int32
            `(splits[-1],)`; the first and last token of each answer, int32 `(R, 2)`; for pairs of
            similar texts, the group of each text, int32 `(R,)`, -1 for a negative; for pairs with
            scores, the cosine to learn, float32 `(R,)`. The loss ignores labels of -100.
        examples: The example that each row belongs to, ascending, int32 `(R,)`.
        full_lengths: Tokens of each example before truncation, int32 `(N,)`; 0 for an example
            without a row.
        word_ids: For `"tag"`, the word of each token that has a label, or -1, int32
            `(splits[-1],)`. A label is at the first token of a word, in one of the text's rows.
        num_truncated: Number of truncated examples; for words and questions, the number with
            several rows.
        dropped: Number of examples without a row or without a label to learn, by reason.
        rows_together: Whether the rows of an example stay together, as the 2 or 3 texts of each
            example of `"embed"`.
        has_token_labels: Whether `labels` has the label of each token.
        is_grouped: Whether the rows that stay together have one label and an axis of their own in a
            batch. All examples have the same number of rows.
        label_parts: Names of the columns of `labels`, which then are separate in a batch.
        pad_id: Token id of the padding.
        prompt_lens: Number of first tokens of each row that a `TextEmbedder` with
            `include_prompt=False` does not pool, int32 `(R,)`; None for other models.

    Example:

        >>> import keras_bert_d2l as kb
        >>> vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a crane flies".split())
        >>> examples = kb.TextExamples(texts=["a crane", "flies"], labels=["noun", "verb"])
        >>> rows = kb.TaskRows.encode(examples, kb.Tokenizer(vocab), max_len=8)
        >>> features, labels = next(iter(rows.batches(2)))
        >>> features["tokens"].numpy().tolist(), labels.numpy().tolist()
        ([[2, 5, 6, 3], [2, 7, 3, 0]], [0, 1])
    """

    task: str
    label_names: tuple[str, ...]
    tokens: np.ndarray
    splits: np.ndarray
    seconds: np.ndarray
    labels: np.ndarray | None
    examples: np.ndarray
    full_lengths: np.ndarray
    word_ids: np.ndarray | None = None
    num_truncated: int = 0
    dropped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    rows_together: bool = False
    has_token_labels: bool = False
    is_grouped: bool = False
    label_parts: tuple[str, ...] = ()
    pad_id: int = 0
    prompt_lens: np.ndarray | None = None

    @classmethod
    def encode(
        cls,
        examples: TaskExamples,
        tokenizer: Tokenizer,
        *,
        labels: Sequence[str] | None = None,
        max_len: int,
        overlap: int | None = None,
        model: Any = None,
    ) -> "TaskRows":
        """Tokenize examples.

        The tokenizer truncates texts, at the end by default; in a pair, the longer text. A long
        text of words gives several rows, which overlap by half, and each word has its label in the
        row with most of its context, as `tag` uses the predictions. A long context
        gives several rows, each with the complete question; rows that do not contain the complete
        answer are labeled with position 0, the `[CLS]` token, which means "no answer". If a
        question has several answers, the first one is learned.

        Args:
            examples: The examples.
            tokenizer: The tokenizer of the model.
            labels: The label names of the model; by default those of the examples, sorted.
            max_len: Maximum number of tokens in a row.
            overlap: For `"answer"`, the number of tokens that successive rows of a context share.
                Defaults to a third of `max_len`.
            model: For `"embed"`, the `TextEmbedder` whose prompts are put before the texts: that of
                queries before the first text of a pair, that of documents before the others.

        Raises:
            ValueError: There are no examples, a label is not among `labels`, there are fewer than
                two labels, or `max_len` is too small.
        """
        check_type("tokenizer", tokenizer, Tokenizer)
        check_integer("max_len", max_len, 1)
        check_integer("overlap", 0 if overlap is None else overlap, 0)
        check_type("examples", examples, TaskExamples, "Read a file with `read_examples`.")
        if not len(examples):
            raise ValueError(f"There are no examples to learn from in {examples.source!r}.")
        options = EncodingOptions(labels, max_len, overlap, model)
        fields = task_named(examples.task).encode(examples, tokenizer, options)
        return cls(task=examples.task, pad_id=tokenizer.vocab.pad_id, **fields)

    def __len__(self) -> int:
        return len(self.splits) - 1

    def __repr__(self) -> str:
        size = f"{how_many(len(self), 'row')}, {how_many(len(self.tokens), 'token')}"
        return f"TaskRows(task={self.task!r}, {size}, label_names={shown(self.label_names)})"

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens in each row, int64 `(R,)`."""
        return np.diff(self.splits)

    def lost_in_words(self) -> list[str]:
        """Return one line per reason for examples that are not learned."""
        return [f"{count:,} skipped: {reason}" for reason, count in self.dropped.items()]

    def batches(
        self, batch_size: int, *, epoch: int | None = None, seed: int = 0
    ) -> tf.data.Dataset:
        """Return batches for the model of the task, each padded to its longest row.

        With JAX, which compiles the training step for each length, the length is rounded up to a
        multiple of 32, but not above that of the longest row of all batches.

        Args:
            batch_size: B; if the rows of an example stay together, the number of examples. The last
                batch may be smaller.
            epoch: None keeps the order of the rows. A number shuffles them, in an order that
                depends only on `seed` and `epoch`, so that each batch has rows of similar length.
            seed: Random seed of the order, at least 0.

        Returns:
            A dataset of `(features, labels)` with known cardinality, or of `features` if the labels
            are unknown. Features are `tokens` and `segments` `(B, T)` and `valid_lens` `(B,)`,
            int32; for `"choose"`, `(B, N, T)` and `(B, N)`. Labels are int32 `(B,)`, `(B, C)` or
            `(B, T)`, float32 `(B,)`, or `{"start": (B,), "end": (B,)}`, int32.

        Raises:
            ValueError: An argument is not an integer or is too small.
        """
        check_integer("batch_size", batch_size, 1)
        check_integer("seed", seed, 0)
        if epoch is not None:
            check_integer("epoch", epoch, 0)
        number = len(self._groups()) - 1
        order = np.arange(number) if epoch is None else self._order(batch_size, seed, epoch)
        with tf.device("CPU:0"):  # where the pipeline runs
            batch = self._batch_function()
            dataset = tf.data.Dataset.from_tensor_slices(order).batch(batch_size)
        return dataset.map(batch, tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)

    def for_loss(self, loss: object) -> "TaskRows":
        """Return the rows for a loss; one may compare the rows of an example with each other."""
        if not getattr(loss, "compares_rows", False) or self.labels is None:
            return self
        most = 2**24  # above, float32 has no number of its own for each query
        check_that(self.examples.max() < most, "examples", f"at most {most:,}", len(self.examples))
        labels = np.stack([self.examples, self.labels], axis=1).astype(np.float32)
        return dataclasses.replace(self, labels=labels, rows_together=True)

    def _groups(self) -> np.ndarray:
        """Return the first row of each group of rows that stay together, and the number of rows."""
        starts = np.unique(self.examples, return_index=True)[1]
        return np.append(starts if self.rows_together else np.arange(len(self)), len(self))

    def _order(self, batch_size: int, seed: int, epoch: int) -> np.ndarray:
        random = np.random.default_rng((seed, epoch))
        lengths = np.maximum.reduceat(self.lengths, self._groups()[:-1])
        order = random.permutation(len(lengths))
        full = len(order) // batch_size * batch_size
        if full:
            by_length = bucket(lengths[order[:full]], batch_size=batch_size, random=random)
            order[:full] = order[by_length]
        return order

    def _padded(self, rows: tf.RaggedTensor, value: int) -> tf.Tensor:
        """Return rows of this object as a dense tensor."""
        step = _JAX_STEP if keras.backend.backend() == "jax" else 1
        length = -(-tf.reduce_max(rows.row_lengths()) // step) * step
        longest = tf.constant(self.lengths.max(), tf.int64)
        return rows.to_tensor(value, shape=tf.stack([-1, tf.minimum(length, longest)]))

    def _batch_function(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """Return a function that builds the batch of given groups with TensorFlow ops only."""
        groups = self._groups()
        of_groups = tf.RaggedTensor.from_row_splits(np.arange(len(self)), groups, validate=False)
        together = len(self) // (len(groups) - 1)  # if it is the same for all groups
        splits = tf.constant(self.splits, tf.int64)
        tokens = tf.RaggedTensor.from_row_splits(self.tokens, splits, validate=False)
        seconds = tf.constant(self.seconds)
        labels = None if self.labels is None else tf.constant(self.labels)
        if labels is not None and self.has_token_labels:
            labels = tf.RaggedTensor.from_row_splits(labels, splits, validate=False)

        @tf.autograph.experimental.do_not_convert  # nothing to convert
        def batch(rows: tf.Tensor) -> tf.Tensor:
            if self.rows_together:
                rows = tf.gather(of_groups, rows).flat_values
            chosen = tf.gather(tokens, rows)
            dense = self._padded(chosen, self.pad_id)
            valid_lens = tf.cast(chosen.row_lengths(), tf.int32)
            position = tf.range(tf.shape(dense)[1])
            is_second = position >= tf.gather(seconds, rows)[:, tf.newaxis]
            is_text = position < valid_lens[:, tf.newaxis]
            segments = tf.cast(is_second & is_text, tf.int32)
            features = {"tokens": dense, "segments": segments, "valid_lens": valid_lens}
            if self.prompt_lens is not None:
                features["prompt_lens"] = tf.gather(tf.constant(self.prompt_lens), rows)
            if self.is_grouped:
                features = {
                    name: tf.reshape(x, tf.concat([[-1, together], tf.shape(x)[1:]], 0))
                    for name, x in features.items()
                }
            if labels is None:
                return features
            of_rows = tf.gather(labels, rows)
            if self.has_token_labels:
                of_rows = self._padded(of_rows, IGNORED)
            elif self.is_grouped:
                of_rows = of_rows[::together]
            elif self.label_parts:
                of_rows = {name: of_rows[:, n] for n, name in enumerate(self.label_parts)}
            return features, of_rows

        return batch


def encoded_texts(examples: TextExamples, tokenizer: Tokenizer, options: EncodingOptions) -> Fields:
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
        raise ValueError(
            f"The model's labels are {shown_names(names)}. Received: {source} "
            f"{shown_names(unseen)} as well "
            f"({how_many(sum(counts[name] for name in unseen), 'time')}). Train on examples of "
            "every label, remove the unknown labels, or spell them alike in all files."
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
