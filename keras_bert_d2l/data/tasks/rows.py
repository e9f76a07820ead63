"""Examples of a task in, batches for its model out.

The examples are tokenised once, and kept without padding; an epoch is an order of their rows.

N: examples, R: rows (windows of a long text are several rows of one example), B: rows of a batch,
T: tokens of its longest row, C: labels.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert_d2l.data.buckets import bucket
from keras_bert_d2l.data.tasks.encoding import (
    IGNORED,
    encoded_questions,
    encoded_texts,
    encoded_words,
)
from keras_bert_d2l.data.tasks.examples import (
    QuestionExamples,
    TaskExamples,
    TextExamples,
    WordExamples,
)
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TaskRows:
    """Rows of token ids with their labels, made by `encode`.

    What belongs to tokens is ragged: row r has the values from `splits[r]` to `splits[r + 1]`.

    Attributes:
        task: `"classify"`, `"regress"`, `"tag"` or `"answer"`.
        label_names: The names of the C labels, in the order of their ids; none of scores and
            answers.
        tokens: Token ids, `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, int32 `(splits[-1],)`.
        splits: int64 `(R + 1,)`.
        seconds: Position in each row at which the second text (segment 1) begins; the length of
            the row where there is none. int32 `(R,)`.
        labels: Label ids int32 `(R,)`, 0 and 1 int32 `(R, C)` where a text can have any number of
            labels, scores float32 `(R,)`, the label of each token int32 `(splits[-1],)`, or the
            answer's first and last token int32 `(R, 2)`; None: not known. One of -100 is ignored.
        examples: The number of the example that a row is of, ascending, int32 `(R,)`.
        full_lengths: Tokens that each example would have in one row without an end, int32 `(N,)`;
            0 for an example that has no row.
        word_ids: For `"tag"`: the word that each token is of, -1 for special tokens; int32
            `(splits[-1],)`.
        num_truncated: Examples that lost tokens; of questions, those with several rows.
        num_words_cut: For `"tag"`: words without a token in their row, beyond `max_len` or made
            of characters that the tokenizer removes.
        dropped: How many examples have no row, or no label to learn from, by reason.
        pad_id: The id of padding.
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
    num_words_cut: int = 0
    dropped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    pad_id: int = 0

    @classmethod
    def encode(
        cls,
        examples: TaskExamples,
        tokenizer: Tokenizer,
        *,
        labels: Sequence[str] | None = None,
        max_len: int,
        overlap: int | None = None,
    ) -> "TaskRows":
        """Tokenises examples.

        Of a pair that is too long the longer text loses tokens at its end, until both are equally
        long, then both. A long context becomes several rows, each with the whole question; rows
        that do not hold the whole answer are labeled with the start token, 0, as those of a
        question without an answer. The answer that is learnt from is the first of several.

        Args:
            examples: The examples.
            tokenizer: The tokenizer of the model.
            labels: The names of the model's labels; None: those of the examples, sorted.
            max_len: Tokens in a row at most.
            overlap: For `"answer"`: tokens that two successive rows of a context have in common;
                None: a third of `max_len`.

        Raises:
            ValueError: There is no example, a label is not among `labels`, there are fewer than
                two labels, or `max_len` has no room.
        """
        if not len(examples):
            raise ValueError(f"There is no example to learn from in {examples.source!r}.")
        if isinstance(examples, WordExamples):
            return cls(**encoded_words(examples, tokenizer, labels, max_len))
        if isinstance(examples, QuestionExamples):
            return cls(**encoded_questions(examples, tokenizer, max_len, overlap))
        if isinstance(examples, TextExamples):
            return cls(**encoded_texts(examples, tokenizer, labels, max_len))
        raise ValueError(
            f"`examples` must be what `read_examples` returns. Received: {type(examples).__name__}."
        )

    def __len__(self) -> int:
        return len(self.splits) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Tokens in each row, int64 `(R,)`."""
        return np.diff(self.splits)

    def lost_in_words(self) -> list[str]:
        """Says what is not learnt from, a line for each reason."""
        lines = [f"{count:,} left out: {reason}" for reason, count in self.dropped.items()]
        if self.num_words_cut:
            lines.append(f"{self.num_words_cut:,} words are cut off or give no token")
        return lines

    def padding_share(self, batch_size: int) -> float:
        """The share of padding in the batches of an epoch."""
        order = self._order(batch_size, seed=0, epoch=0)
        lengths = np.pad(self.lengths[order], (0, -len(order) % batch_size))
        longest = lengths.reshape(-1, batch_size).max(axis=1)
        sizes = np.full(len(longest), batch_size)
        sizes[-1] -= -len(order) % batch_size
        return 1 - float(lengths.sum() / (longest * sizes).sum())

    def batches(
        self, batch_size: int, *, epoch: int | None = None, seed: int = 0
    ) -> tf.data.Dataset:
        """Batches as the task's model takes them, each as long as its longest row.

        Args:
            batch_size: B; the last batch has what is left.
            epoch: None: the rows in their order. A number: in an order that `seed` and `epoch`
                determine, rows of about one length in a batch.
            seed: A number of at least 0.

        Returns: a dataset of known cardinality of `(features, labels)`, or where labels are not
            known of `features` alone: a dictionary of `tokens` and `segments` `(B, T)` and
            `valid_lens` `(B,)`, int32. Labels are int32 `(B,)`, `(B, C)` or `(B, T)`, float32
            `(B,)`, or `{"start": (B,), "end": (B,)}`, int32.

        Raises:
            ValueError: A number is not what it should be.
        """
        _check_numbers(batch_size=(batch_size, 1), seed=(seed, 0), epoch=(epoch or 0, 0))
        order = np.arange(len(self)) if epoch is None else self._order(batch_size, seed, epoch)
        with tf.device("CPU:0"):  # where the pipeline runs
            batch = self._batch_function()
            dataset = tf.data.Dataset.from_tensor_slices(order).batch(batch_size)
        return dataset.map(batch, tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)

    def _order(self, batch_size: int, seed: int, epoch: int) -> np.ndarray:
        random = np.random.default_rng((seed, epoch))
        order = random.permutation(len(self))
        full = len(order) // batch_size * batch_size
        if full:
            lengths = self.lengths[order[:full]]
            order[:full] = order[bucket(lengths, batch_size=batch_size, random=random)]
        return order

    def _batch_function(self) -> Callable[[tf.Tensor], Any]:
        """Returns what gathers rows, and has no part in Python while it runs."""
        splits = tf.constant(self.splits, tf.int64)
        tokens = tf.RaggedTensor.from_row_splits(self.tokens, splits, validate=False)
        seconds = tf.constant(self.seconds)
        labels = None
        if self.labels is not None:
            labels = tf.constant(self.labels)
            if self.task == "tag":
                labels = tf.RaggedTensor.from_row_splits(labels, splits, validate=False)

        @tf.autograph.experimental.do_not_convert  # nothing to convert
        def batch(rows: tf.Tensor) -> Any:
            chosen = tf.gather(tokens, rows)
            dense = chosen.to_tensor(self.pad_id)
            valid_lens = tf.cast(chosen.row_lengths(), tf.int32)
            position = tf.range(tf.shape(dense)[1])
            is_second = position >= tf.gather(seconds, rows)[:, tf.newaxis]
            is_text = position < valid_lens[:, tf.newaxis]
            segments = tf.cast(is_second & is_text, tf.int32)
            features = {"tokens": dense, "segments": segments, "valid_lens": valid_lens}
            if labels is None:
                return features
            of_rows = tf.gather(labels, rows)
            if self.task == "tag":
                of_rows = of_rows.to_tensor(IGNORED)
            elif self.task == "answer":
                of_rows = {"start": of_rows[:, 0], "end": of_rows[:, 1]}
            return features, of_rows

        return batch


def _check_numbers(**numbers: tuple[Any, int]) -> None:
    for name, (value, least) in numbers.items():
        is_int = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not is_int or value < least:
            raise ValueError(
                f"`{name}` must be an integer of at least {least}. Received: {name}={value!r}."
            )
