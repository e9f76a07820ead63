"""Read the rows of any training step from a token store.

The rows of a step depend only on its number, so earlier steps need not be read.

B: rows per batch, T: tokens per row, E: maximum number of examples per row.
"""

import atexit
import dataclasses
import functools
import threading
import time

import numpy as np

from keras_bert_d2l.data.buckets import bucket
from keras_bert_d2l.data.pretraining.packing import Rows, bucket_lengths, lay_out, pack
from keras_bert_d2l.data.pretraining.pairs import ExampleOptions, Examples, make_examples
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.text.vocab import Vocab

_ORDER_STREAM, _MASK_STREAM = 1, 2  # random streams of an epoch; `pairs` uses stream 0


class _PythonCalls:
    """Context manager for calls from TensorFlow's threads, which makes Python's exit wait for them.

    A thread that enters Python during the shutdown of the interpreter never returns, and the
    destructor of its iterator then waits forever. The shutdown therefore waits until no call is
    running or expected, and any later call ends the dataset.
    """

    _QUIET_SECONDS = 0.1  # after this long without a call, no more are expected

    def __init__(self) -> None:
        self._num_running = self._num_started = 0
        self._lock = threading.Lock()
        self._is_ending = False
        atexit.register(self._wait)

    def __enter__(self) -> None:
        with self._lock:
            self._num_started += 1
            if self._is_ending:
                raise StopIteration  # tells TensorFlow that the data has ended
            self._num_running += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._num_running -= 1

    def _wait(self) -> None:
        self._is_ending = True
        seen = 0
        while self._num_running or seen != self._num_started:
            seen = self._num_started
            time.sleep(self._QUIET_SECONDS)


_python_calls = _PythonCalls()


@dataclasses.dataclass(frozen=True)
class _Epoch:
    """The rows of an epoch: row r contains the examples `order[splits[r] : splits[r + 1]]`."""

    examples: Examples
    order: np.ndarray  # int64
    splits: np.ndarray  # int64 (number of rows + 1,)
    keys: np.ndarray  # int64 (number of rows,), the random keys of the masks
    lengths: np.ndarray  # int64 (number of steps,), T of each step


@dataclasses.dataclass(eq=False, kw_only=True)
class Reader:
    """Reader of the rows of any step. See `pretraining_dataset` for the options."""

    store: TokenStore
    vocab: Vocab
    options: ExampleOptions
    rows: Rows
    max_examples: int
    batch_size: int
    shard: tuple[int, int]
    drop_remainder: bool

    def __post_init__(self) -> None:
        self._tokens = np.asarray(self.store.tokens)  # avoids the overhead of indexing a memmap
        self._lock = threading.Lock()
        # A call of `read` may span two epochs.
        self._cached_epoch = functools.lru_cache(maxsize=2)(self._make_epoch)
        self._step_rows = self.batch_size * self.shard[1]  # rows per step, over all shards
        # All epochs have the number of steps of epoch 0.
        self.num_steps = len(self._cached_epoch(0).lengths)

    def read(self, first: np.int64, last: np.int64) -> tuple[np.ndarray, ...]:
        """Read this shard's rows of the steps from `first` to `last - 1`.

        Returns:
            The keys of the rows, int64, and the arrays of their `Layout`.
        """
        with _python_calls:
            parts = []
            while first < last:
                number, step = divmod(int(first), self.num_steps)
                stop = min(step + int(last - first), self.num_steps)
                parts.append(self._read(number, step, stop))
                first += stop - step
        return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))

    def _read(self, number: int, first: int, last: int) -> list[np.ndarray]:
        """Read the steps from `first` to `last - 1` of an epoch, whose rows have one length."""
        with self._lock:  # otherwise every thread of the pipeline would build the same epoch
            epoch = self._cached_epoch(number)
        steps = np.arange(first, last)[:, None] * self._step_rows
        own = np.arange(self.batch_size) + self.shard[0] * self.batch_size
        rows = (steps + own).ravel()
        starts, sizes = epoch.splits[rows], epoch.splits[rows + 1] - epoch.splits[rows]
        splits = np.concatenate([[0], np.cumsum(sizes)])
        layout = lay_out(
            self._tokens,
            epoch.examples,
            epoch.order[np.arange(splits[-1]) + np.repeat(starts - splits[:-1], sizes)],
            splits,
            vocab=self.vocab,
            max_len=int(epoch.lengths[first]),
            max_examples=self.max_examples,
            packed=self.rows == "packed",
        )
        return [epoch.keys[rows], *(array for array in layout if array is not None)]

    def _make_epoch(self, number: int) -> _Epoch:
        """Make the examples of an epoch, shuffle them and assign them to rows."""
        seed, step_rows, max_len = self.options.seed, self._step_rows, self.options.max_len
        examples = make_examples(self.store, self.options, epoch=number)
        random = np.random.default_rng((seed, number, _ORDER_STREAM))
        order, splits = random.permutation(len(examples)), np.arange(len(examples) + 1)
        if self.rows == "packed":
            packed, splits = pack(
                examples.lengths()[order],
                max_len=max_len,
                max_examples=self.max_examples,
                random=random,
            )
            order = order[packed]
        if number:
            num_steps = self.num_steps
        else:
            num_steps, rest = divmod(len(splits) - 1, step_rows)
            num_steps += rest > 0 and not self.drop_remainder
            if not num_steps:
                raise ValueError(
                    f"The text gives only {rest} rows, fewer than the {step_rows} of one batch. "
                    "Use a smaller `batch_size` or more text."
                )
        num_rows = num_steps * step_rows
        order, splits = self._fill(order, splits, num_rows, empty=len(examples))
        examples = examples.with_empty()
        lengths = np.full(num_steps, max_len)
        if self.rows == "bucketed":
            random = np.random.default_rng((seed, number, _ORDER_STREAM, 1))
            examples_lengths = examples.lengths()
            order = order[bucket(examples_lengths[order], batch_size=step_rows, random=random)]
            lengths = bucket_lengths(examples_lengths[order], batch_size=step_rows, max_len=max_len)
        random = np.random.default_rng((seed, number, _MASK_STREAM))
        return _Epoch(examples, order, splits, random.integers(1 << 63, size=num_rows), lengths)

    def _fill(
        self, order: np.ndarray, splits: np.ndarray, num_rows: int, empty: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Fit an epoch to `num_rows` rows: drop the surplus, or repeat rows or add empty ones."""
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
        return order[: splits[num_rows]], splits[: num_rows + 1]
