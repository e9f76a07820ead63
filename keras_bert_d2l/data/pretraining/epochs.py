"""Epochs and steps: a token store in, the rows of any step out.

A step of an epoch is a function of its number alone: nothing of the steps before it is read.

B: rows of a batch, T: tokens in a row, E: examples in a row at most.
"""

import atexit
import dataclasses
import functools
import threading
import time
from typing import Any

import numpy as np

from keras_bert_d2l.data.pretraining.packing import bucket, bucket_lengths, lay_out, pack
from keras_bert_d2l.data.pretraining.pairs import Examples, make_examples
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.text.vocab.vocab import Vocab

_ORDER_STREAM, _MASK_STREAM = 1, 2  # of random numbers; stream 0 of an epoch makes the examples


class _Calls:
    """The calls of Python by TensorFlow's threads, which have to end before Python does.

    A thread that asks for Python while it shuts down never returns, and the iterator that is torn
    down then waits for it forever.
    """

    _QUIET = 0.1  # seconds without a call, after which none is to be expected

    def __init__(self) -> None:
        self._running = self._all = 0
        self._lock = threading.Lock()
        self._is_ending = False
        atexit.register(self._await_end)

    def begin(self) -> bool:
        """Tells whether there is time for a call, which `end` has to follow."""
        with self._lock:
            self._all += 1
            self._running += not self._is_ending
            return not self._is_ending

    def end(self) -> None:
        """Ends a call."""
        with self._lock:
            self._running -= 1

    def _await_end(self) -> None:
        self._is_ending = True
        seen = -1
        while self._running or seen != self._all:
            seen = self._all
            if seen:  # else there has never been a call
                time.sleep(self._QUIET)


_calls = _Calls()


@dataclasses.dataclass(frozen=True)
class _Epoch:
    """The rows of an epoch: row r holds `examples` number `order[splits[r] : splits[r + 1]]`."""

    examples: Examples
    order: np.ndarray  # int64
    splits: np.ndarray  # int64 (number of rows + 1,)
    keys: np.ndarray  # int64 (number of rows,), determine the masks
    lengths: np.ndarray  # int64 (number of steps,), T


@dataclasses.dataclass(frozen=True, eq=False)
class Reader:
    """What each step consists of, as a function of the step alone."""

    store: TokenStore
    stored: np.ndarray
    vocab: Vocab
    documents: np.ndarray
    objective: str
    short_seq_prob: float
    cross_documents: bool
    max_len: int
    rows: str
    max_examples: int
    batch_size: int
    shard: tuple[int, int]
    seed: int
    drop_remainder: bool
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    @property
    def rows_of_step(self) -> int:
        """Rows of a step, of all shards together."""
        return self.batch_size * self.shard[1]

    @functools.cached_property
    def num_steps(self) -> int:
        """Steps in an epoch: those of epoch 0."""
        _, _, splits = self._examples_in_rows(0)
        steps, rest = divmod(len(splits) - 1, self.rows_of_step)
        if rest and not self.drop_remainder:
            steps += 1
        if not steps:
            of_shards = f" and shard={self.shard}" if self.shard[1] > 1 else ""
            raise ValueError(
                f"The text makes {len(splits) - 1} rows, fewer than one batch. Received: "
                f"batch_size={self.batch_size}{of_shards}. Use a smaller batch, more text or "
                "`drop_remainder=False`."
            )
        return steps

    def read(self, first: np.int64, last: np.int64) -> tuple[np.ndarray, ...]:
        """The rows of this shard from step `first` up to before `last`.

        Returns: keys, int64 `(R,)`; the arrays of a `Layout`; and those of `Packed`, if packed.
        """
        if not _calls.begin():
            raise StopIteration  # the end of the data, for TensorFlow
        try:
            parts = [self._read(*divmod(step, self.num_steps)) for step in range(first, last)]
        finally:
            _calls.end()
        return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))

    def _read(self, number: int, step: int) -> tuple[np.ndarray, ...]:
        epoch = self._epoch(number)
        index, _ = self.shard
        first = step * self.rows_of_step + index * self.batch_size
        splits = epoch.splits[first : first + self.batch_size + 1]
        layout = lay_out(
            self.stored,
            epoch.examples,
            epoch.order[splits[0] : splits[-1]],
            splits,
            vocab=self.vocab,
            max_len=int(epoch.lengths[step]),
            max_examples=self.max_examples,
            segments=self.objective != "none",
            packed=self.rows == "packed",
        )
        keys = epoch.keys[first : first + self.batch_size]
        texts = (layout.tokens, layout.segments, layout.valid_lens)
        apart = layout.packed
        packed = (apart.example_ids, apart.position_ids, apart.cls_positions) if apart else ()
        return keys, *texts, layout.labels, layout.weights, *packed

    def _epoch(self, number: int) -> _Epoch:
        with self.lock:  # otherwise every thread of the pipeline would make the same epoch
            return self._cached_epoch(number)

    @functools.cached_property
    def _cached_epoch(self) -> Any:
        return functools.lru_cache(maxsize=2)(self._make_epoch)  # batches may straddle two

    def _make_epoch(self, number: int) -> _Epoch:
        examples, order, splits = self._examples_in_rows(number)
        num_rows = self.num_steps * self.rows_of_step
        empty = len(examples)  # an example without text, which fills up
        missing = num_rows - (len(splits) - 1)
        if missing > 0:
            if self.drop_remainder:
                again = np.resize(np.arange(len(splits) - 1), missing)
                filling = [order[splits[row] : splits[row + 1]] for row in again]
            else:
                filling = [np.array([empty])] * missing
            order = np.concatenate([order, *filling])
            sizes = np.cumsum([len(row) for row in filling])
            splits = np.concatenate([splits, splits[-1] + sizes])
        order, splits = order[: splits[num_rows]], splits[: num_rows + 1]
        num_texts = 1 if self.objective == "none" else 2
        examples = Examples(
            np.concatenate([examples.texts, np.zeros((num_texts, 2), np.int64)]),
            np.append(examples.splits, examples.splits[-1] + num_texts),
            np.append(examples.labels, 0),
        )
        lengths = np.full(self.num_steps, self.max_len)
        if self.rows == "bucketed":
            random = np.random.default_rng((self.seed, number, _ORDER_STREAM, 1))
            sizes = examples.lengths()
            order = order[bucket(sizes[order], batch_size=self.rows_of_step, random=random)]
            lengths = bucket_lengths(
                sizes[order], batch_size=self.rows_of_step, max_len=self.max_len
            )
        random = np.random.default_rng((self.seed, number, _MASK_STREAM))
        return _Epoch(examples, order, splits, random.integers(1 << 63, size=num_rows), lengths)

    def _examples_in_rows(self, number: int) -> tuple[Examples, np.ndarray, np.ndarray]:
        """The examples of an epoch, their order, and which of them each row holds."""
        examples = make_examples(
            self.store,
            objective=self.objective,
            max_len=self.max_len,
            seed=self.seed,
            epoch=number,
            documents=self.documents,
            short_seq_prob=self.short_seq_prob,
            cross_documents=self.cross_documents,
        )
        random = np.random.default_rng((self.seed, number, _ORDER_STREAM))
        order = random.permutation(len(examples))
        if self.rows != "packed":
            return examples, order, np.arange(len(order) + 1)
        packed, splits = pack(
            examples.lengths()[order],
            max_len=self.max_len,
            max_examples=self.max_examples,
            random=random,
        )
        return examples, order[packed], splits
