"""Callbacks of both kinds of training: progress, logs, diverging losses, signals to stop."""

import contextlib
import dataclasses
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Literal

import keras
import tensorflow as tf

from keras_bert_d2l.printing import printable
from keras_bert_d2l.progress import Stage, without_bar
from keras_bert_d2l.training.devices import gathered
from keras_bert_d2l.training.optimization.optimizers import mean_gradient_norm
from keras_bert_d2l.training.run.run_folder import RunFolder
from keras_bert_d2l.types import PathLike, Tensor

Verbose = Literal["auto"] | int

Metrics = dict[str, float | None]
_HELD_OUT = "val_"  # Keras's prefix for the metrics of the validation data
# The cross entropies, averaged over batches, which `loss` has too.
_DUPLICATES = ("mlm_loss", "nsp_loss")
# tf.summary.scalar needs the tensorboard package, which is otherwise only needed for viewing.
_SCALAR = tf.compat.v1.SummaryMetadata(
    plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
)
# Sent by Ctrl-C; by job schedulers, containers and `timeout`; and when the terminal is closed.
_NAMES = {"SIGINT": "Ctrl-C", "SIGTERM": "SIGTERM", "SIGHUP": "SIGHUP"}
_SIGNALS = {getattr(signal, name): _NAMES[name] for name in _NAMES if hasattr(signal, name)}


@dataclasses.dataclass
class Progress:
    """Progress of a run.

    Attributes:
        step: Number of completed optimizer steps.
    """

    step: int = 0


class Printer:
    """Prints lines, during which the bar of a stage disappears.

    Args:
        verbose: 0: it prints nothing.
    """

    def __init__(self, verbose: Verbose) -> None:
        self.is_silent = not verbose

    def __call__(self, line: str) -> None:
        if not self.is_silent:
            with without_bar():
                print(printable(line), flush=True)


class Throughput(keras.callbacks.Callback):
    """Callback that counts steps and adds `sequences/s` and `tokens/s` to the logs of evaluations.

    Both are averages since the previous evaluation. They exclude evaluations and the first step,
    which builds the graph. Tokens include padding: `max_len` per row.

    Put it before the callbacks that read `progress` or the logs.

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
        self._end = time.perf_counter()
        if self._is_first_step:
            self._is_first_step, self._start = False, self._end
        else:
            self._steps += 1

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        if logs is None or not self._steps:
            return
        logs["sequences/s"] = self._steps * self.batch_size / (self._end - self._start)
        if self.max_len is not None:
            logs["tokens/s"] = logs["sequences/s"] * self.max_len


class NextTokenMetrics(keras.callbacks.Callback):
    """Callback that renames the masked-token metrics of causal steps to `next_token_*`.

    Put it before the callbacks that read the logs.
    """

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        for name in ("cross_entropy", "accuracy"):
            if logs is not None and f"mlm_{name}" in logs:
                logs[f"next_token_{name}"] = logs.pop(f"mlm_{name}")


class GradientNorm(keras.callbacks.Callback):
    """Callback that adds the mean norm of the gradient since the last evaluation to the logs.

    The norms are those before clipping. The optimizer needs `add_gradient_norms`.

    Put it before the callbacks that read the logs or save the optimizer.
    """

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        norm = mean_gradient_norm(self.model.optimizer)
        if logs is not None and norm is not None:
            logs["gradient_norm"] = norm


class TrainingStage(keras.callbacks.Callback):
    """Callback that shows the position, loss and accuracy in the display of a stage.

    Loss and accuracy are means since the last evaluation.

    Args:
        work: The stage.
        position: Returns the position, such as `"step 5/10"`, and the number of remaining steps.
    """

    def __init__(self, work: Stage, position: Callable[[], tuple[str, int]]) -> None:
        super().__init__()
        self.work = work
        self.position = position

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        position, left = self.position()
        self.work.advance()
        self.work.total = self.work.completed + left  # a budget in time may buy more or fewer steps
        names = {"loss": "loss", "accuracy": "accuracy", "mlm_accuracy": "accuracy"}
        values = [f"{names[n]} {value:.3f}" for n, value in (logs or {}).items() if n in names]
        self.work.remark = ", ".join([position, *values])

    def on_test_begin(self, logs: Mapping[str, float] | None = None) -> None:
        self.work.remark = f"{self.position()[0]}, evaluating"


class StopAtNonFiniteLoss(keras.callbacks.Callback):
    """Callback that ends a run at the first loss that is not finite, before anything is saved.

    Put it first: before the callbacks that count steps and save the model.

    Args:
        progress: Provides the number of completed steps.

    Raises:
        FloatingPointError: The loss of a step or of an evaluation is not finite.
    """

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self.progress = progress

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        # This is the mean since the last evaluation, which becomes and remains non-finite at once.
        self._check("loss", (logs or {}).get("loss", math.nan), self.progress.step + 1)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        self._check("evaluation loss", (logs or {}).get("val_loss", 0.0), self.progress.step)

    def _check(self, name: str, loss: float, step: int) -> None:
        if not math.isfinite(loss):
            sync(self.model)
            raise diverged(f"the {name} is {loss}", step)


def diverged(what: str, step: int) -> FloatingPointError:
    """Return the error for a run whose loss or weights are not finite at a step."""
    return FloatingPointError(
        f"The training diverged at step {step:,}: {what}. Start a new run with a lower "
        "`learning_rate` or a longer warm-up. The last checkpoints are unchanged."
    )


class RunLog(keras.callbacks.Callback):
    """Callback that writes the metrics of each evaluation to `metrics.jsonl` and TensorBoard.

    Each line of `metrics.jsonl` is a JSON object with `step`, `learning_rate`, the training
    metrics since the last evaluation under their Keras names, the held-out metrics with the prefix
    `val_`, the norm of the gradient and the throughput.

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
            if name.removeprefix(_HELD_OUT) not in _DUPLICATES
        }
        line: Metrics = {"step": self.progress.step, **finite(values)}
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        with self._writer.as_default(step=self.progress.step):
            for name, value in values.items():
                kind = "held_out" if name.startswith(_HELD_OUT) else "train"
                tag = f"{kind}/{name.removeprefix(_HELD_OUT)}"
                tf.summary.write(tag, tf.constant(value, tf.float32), metadata=_SCALAR)
        self._writer.flush()
        return line

    def close(self) -> None:
        """Close the files."""
        self._writer.close()


def finite(metrics: Mapping[str, float]) -> Metrics:
    """Replace metrics that are not finite with `None`, because JSON has no NaN or infinity."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


def sync(model: keras.Model) -> None:
    """Copy the weights into the model, because the JAX trainer stores them elsewhere in `fit`."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()


class TrainingInterrupted(KeyboardInterrupt):
    """Exception raised after Ctrl-C, SIGTERM or SIGHUP, once the training state is saved.

    Attributes:
        signal_number: The signal. The command line exits with the code 128 + `signal_number`.
    """

    def __init__(self, message: str, signal_number: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.signal_number = signal_number


class Interrupt:
    """The first signal that asked a run to stop.

    Attributes:
        signal_number: The signal, or `None` as long as there was none.
    """

    def __init__(self) -> None:
        self.signal_number: int | None = None

    def agreed(self) -> int | None:
        """Return the signal if any of the processes has received one."""
        if number := int(gathered(self.signal_number or 0).max()):
            self.signal_number = number
        return number or None

    def check(self, message: str) -> None:
        """Raise `TrainingInterrupted` if any of the processes has received a signal."""
        if number := self.agreed():
            raise TrainingInterrupted(message, number)


@contextlib.contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Yield an object that records the first signal, so that the run can save its state.

    A second Ctrl-C ends the program immediately. A repeated SIGTERM or SIGHUP does not, because
    `timeout` and shells send both to a process and to its group. Signals that the program ignores,
    as under `nohup`, remain ignored.

    Outside the main thread no signal is recorded, because Python handles signals only there.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    previous = {number: signal.getsignal(number) for number in _SIGNALS}

    def record(number: int, frame: FrameType | None) -> None:
        if interrupt.signal_number is None:
            interrupt.signal_number = number
            if _SIGNALS[number] == "SIGHUP":
                _leave_closed_terminal()
            notice = f"\n{_SIGNALS[number]}: stopping after this step or evaluation."
            if number == signal.SIGINT:
                notice += " Press Ctrl-C again to stop immediately."
            os.write(2, f"{notice}\n".encode())  # the signal may have interrupted a print()
        if number == signal.SIGINT:
            signal.signal(number, previous[number])

    for number, handler in previous.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, record)
    try:
        yield interrupt
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _leave_closed_terminal() -> None:
    """Discard further output if the terminal is closed, because writing to it would fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        try:
            os.write(descriptor, b"")
        except OSError:
            os.dup2(null, descriptor)
    os.close(null)
