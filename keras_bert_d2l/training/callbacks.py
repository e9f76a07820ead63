"""Callbacks of both kinds of training: throughput, logs and stopping on Ctrl-C."""

import contextlib
import json
import math
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from types import FrameType

import keras
import tensorflow as tf

from keras_bert_d2l.training.run_folder import RunFolder
from keras_bert_d2l.training.state import Progress
from keras_bert_d2l.types import PathLike, Tensor

Metrics = dict[str, float | None]

_HELD_OUT = "val_"  # Keras's prefix for the metrics of the validation data
_NOTICE = b"\nStopping after this step or evaluation. Press Ctrl-C again to stop immediately.\n"
_DUPLICATES = ("mlm_loss", "nsp_loss")  # same as the cross entropies, but averaged over batches


class Throughput(keras.callbacks.Callback):
    """Callback that counts steps and adds `sequences/s` and `tokens/s` to the logs.

    Keras also shows them in the progress bar. Both are averages since the last evaluation. They
    exclude evaluations and the first step, which builds the graph. Tokens include padding:
    `max_len` per row.

    Put it before the callbacks that read `progress` or show the logs.

    Args:
        progress: Its `step` is incremented after each batch.
        batch_size: Rows per batch, B, summed over all devices.
        max_len: Tokens per row, T. `None` means that row lengths vary; `tokens/s` is then omitted.
    """

    def __init__(self, progress: Progress, batch_size: int, max_len: int | None) -> None:
        super().__init__()
        self.progress = progress
        self.batch_size = batch_size
        self.max_len = max_len
        self._is_first_step = True

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self._steps, self._start = 0, time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        self.progress.step += 1
        now = time.perf_counter()
        if self._is_first_step:
            self._is_first_step, self._start = False, now
            return
        self._steps += 1
        self._seconds = now - self._start
        self._complete(logs)

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self._complete(logs)

    def _complete(self, logs: dict[str, float] | None) -> None:
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
    """Callback that writes the metrics of each evaluation to `metrics.jsonl` and TensorBoard.

    Each line of `metrics.jsonl` is a JSON object with `step`, `learning_rate`, the training
    metrics since the last evaluation under their Keras names, the held-out metrics with the prefix
    `val_`, and the throughput.

    Args:
        run_dir: The folder of the run.
        progress: Provides the current step.
    """

    def __init__(self, run_dir: PathLike, progress: Progress) -> None:
        super().__init__()
        run = RunFolder(run_dir)
        self.path = run.metrics_file
        self.progress = progress
        self._writer = tf.summary.create_file_writer(os.fspath(run.tensorboard))

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        self.write({**(logs or {}), "learning_rate": self.model.optimizer.learning_rate})

    def write(self, metrics: Mapping[str, float | Tensor]) -> Metrics:
        """Write the metrics of the current step and return them as they are in the file."""
        values = {
            name: float(keras.ops.convert_to_numpy(value))
            for name, value in metrics.items()
            if not _is_duplicate(name)
        }
        line: Metrics = {"step": self.progress.step, **finite(values)}
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        with self._writer.as_default(step=self.progress.step):
            for name, value in values.items():
                _write_scalar(_tag(name), value)
        self._writer.flush()
        return line

    def close(self) -> None:
        """Close the files."""
        self._writer.close()


def finite(metrics: Mapping[str, float]) -> Metrics:
    """Replace metrics that are not finite with `None`, because JSON has no NaN or infinity."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


def _is_duplicate(name: str) -> bool:
    return name.removeprefix(_HELD_OUT) in _DUPLICATES


def _tag(name: str) -> str:
    is_held_out = name.startswith(_HELD_OUT)
    return f"held_out/{name.removeprefix(_HELD_OUT)}" if is_held_out else f"train/{name}"


def _write_scalar(tag: str, value: float) -> None:
    # tf.summary.scalar needs the tensorboard package, which is otherwise only needed for viewing.
    metadata = tf.compat.v1.SummaryMetadata(
        plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
    )
    tf.summary.write(tag, tf.constant(value, tf.float32), metadata=metadata)


class TrainingInterrupted(KeyboardInterrupt):
    """Exception raised after Ctrl-C, once the training state is saved."""


@contextlib.contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C sets. The second Ctrl-C ends the program.

    Outside the main thread the event is never set, because Python handles signals only there.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    previous = signal.getsignal(signal.SIGINT)

    def set_event(signal_number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, previous)
        event.set()
        os.write(2, _NOTICE)  # print() is not safe here: the signal may have interrupted a print

    signal.signal(signal.SIGINT, set_event)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, previous)
