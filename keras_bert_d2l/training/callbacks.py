"""Callbacks: what happens beside the steps of `fit`: figures, logs, checkpoints, Ctrl-C.

They share a `Progress`, which says how far the run is.
"""

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

METRICS_FILE, TENSORBOARD_FOLDER = "metrics.jsonl", "tensorboard"
_HELD_OUT = "val_"  # how Keras marks the figures of the validation data
_NOTICE = b"\nStopping after this step or evaluation; press Ctrl-C again to stop at once.\n"
_DUPLICATES = ("mlm_loss", "nsp_loss")  # the cross entropies again, averaged over batches


@dataclasses.dataclass
class Progress:
    """How far a run is.

    Attributes:
        step: Optimizer steps done.
        best_loss: Lowest held-out loss so far.
    """

    step: int = 0
    best_loss: float = math.inf


class Throughput(keras.callbacks.Callback):
    """Counts the steps and adds `sequences/s` and `tokens/s` to the log, so to the progress bar.

    The figures are the mean since the last evaluation. The very first step, in which the graph is
    built, is left out, and so are the evaluations. Tokens are counted with padding, `max_len` a
    row.

    It has to stand before the callbacks that read `progress` or show the log.

    Args:
        progress: Its `step` is counted up.
        batch_size: Rows in a batch, B, over all devices together.
        max_len: Tokens in a row, T. None, where rows have many lengths: `tokens/s` is left out.
    """

    def __init__(self, progress: Progress, batch_size: int, max_len: int | None) -> None:
        super().__init__()
        self.progress = progress
        self.batch_size = batch_size
        self.max_len = max_len
        self._is_first_step = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._steps, self._start = 0, time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.progress.step += 1
        now = time.perf_counter()
        if self._is_first_step:
            self._is_first_step, self._start = False, now
            return
        self._steps += 1
        self._seconds = now - self._start
        self._complete(logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._complete(logs)

    def _complete(self, logs: Any) -> None:
        if logs is None:
            return
        for name in filter(_is_duplicate, list(logs)):
            del logs[name]
        if self._steps:
            rate = self._steps * self.batch_size / self._seconds
            logs["sequences/s"] = rate
            if self.max_len is not None:
                logs["tokens/s"] = rate * self.max_len


class RunLog(keras.callbacks.Callback):
    """Writes the figures of each evaluation to `metrics.jsonl` and for TensorBoard.

    A line of `metrics.jsonl` is a JSON object: `step`, `learning_rate`, the figures of the
    training since the last evaluation under Keras's names, those of the held-out text with `val_`
    before the name, and the speed.

    Args:
        run_dir: Folder of the run.
        progress: Says the step.
    """

    def __init__(self, run_dir: str | os.PathLike[str], progress: Progress) -> None:
        super().__init__()
        self.path = pathlib.Path(run_dir, METRICS_FILE)
        self.progress = progress
        self._writer: Any = tf.summary.create_file_writer(
            os.fspath(pathlib.Path(run_dir, TENSORBOARD_FOLDER))
        )

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.write({**(logs or {}), "learning_rate": self.model.optimizer.learning_rate})

    def write(self, figures: dict[str, Any]) -> None:
        """Writes the figures of the present step."""
        values = {
            name: float(keras.ops.convert_to_numpy(value))
            for name, value in figures.items()
            if not _is_duplicate(name)
        }
        known = {name: v if math.isfinite(v) else None for name, v in values.items()}  # as JSON
        line = {"step": self.progress.step, **known}
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        with self._writer.as_default(step=self.progress.step):
            for name, value in values.items():
                _write_scalar(_tag(name), value)
        self._writer.flush()

    def close(self) -> None:
        """Closes the files."""
        self._writer.close()


def _is_duplicate(name: str) -> bool:
    return name.removeprefix(_HELD_OUT) in _DUPLICATES


def _tag(name: str) -> str:
    is_held_out = name.startswith(_HELD_OUT)
    return f"held_out/{name.removeprefix(_HELD_OUT)}" if is_held_out else f"train/{name}"


def _write_scalar(tag: str, value: float) -> None:
    # tf.summary.scalar needs the package tensorboard; to write what it reads TensorFlow suffices.
    metadata = tf.compat.v1.SummaryMetadata(
        plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
    )
    tf.summary.write(tag, tf.constant(value, tf.float32), metadata=metadata)


class Checkpoints(keras.callbacks.Callback):
    """Keeps the last and the best state of a run, and saves on Ctrl-C.

    Args:
        progress: Says the step; its `best_loss` is kept up.
        save_last: Writes the whole state, to go on from.
        save_best: Writes the model when the held-out loss is lower than ever.
        interrupt: Set when the run is to stop, see `interruptible`.

    Raises:
        TrainingInterrupted: After a step, when `interrupt` was set; the state is saved.
    """

    def __init__(
        self,
        progress: Progress,
        save_last: Callable[[], None],
        save_best: Callable[[], None],
        interrupt: threading.Event,
    ) -> None:
        super().__init__()
        self.progress = progress
        self.save_last = save_last
        self.save_best = save_best
        self.interrupt = interrupt

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.interrupt.is_set():
            self.save_last()
            raise TrainingInterrupted

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        # Not val_loss, a mean over batches, of which the last one is not full.
        # A model without an NSP head has the first alone.
        loss = logs[_HELD_OUT + "mlm_cross_entropy"] + logs.get(_HELD_OUT + "nsp_cross_entropy", 0)
        if loss < self.progress.best_loss:
            self.progress.best_loss = float(loss)
            self.save_best()
        self.save_last()
        if self.interrupt.is_set():
            raise TrainingInterrupted


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C was pressed, and the state of the run has been saved."""


@contextlib.contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Yields an event that the first Ctrl-C sets, which says so; the second ends the program.

    Outside of the main thread, where Python handles no signals, nothing sets the event.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    previous = signal.getsignal(signal.SIGINT)

    def set_event(*_: Any) -> None:
        signal.signal(signal.SIGINT, previous)
        event.set()
        os.write(2, _NOTICE)  # not print(): the signal may have come in the middle of one

    signal.signal(signal.SIGINT, set_event)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, previous)
