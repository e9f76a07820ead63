"""The loop of both kinds of runs: steps, evaluations, signals, the report and the training state.

The state is in `last/`: `optimizer.safetensors`, `variables.safetensors` with the other variables,
such as the dropout seeds, which Keras does not save, `training_state.json` with the progress, and
copies of `metrics.jsonl` and `report.jsonl`. Between two evaluations it may also have
`metrics.safetensors`. The `last/` of a pretraining run is also a checkpoint, which contains the
weights.
"""

import abc
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import keras
import safetensors
import safetensors.numpy

from keras_bert_d2l.checkpoints.adapters import save_adapter
from keras_bert_d2l.checkpoints.location import STATE_FILE
from keras_bert_d2l.checkpoints.saving import save_pretrained
from keras_bert_d2l.checks import shown
from keras_bert_d2l.files import replacing_file, replacing_folder, write_json
from keras_bert_d2l.models.batch_model import BatchModel
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.losses import Loss
from keras_bert_d2l.models.replaced_tokens import ReplacedTokenDetection
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.progress import Stage
from keras_bert_d2l.reading import check_file, has_file
from keras_bert_d2l.training.devices import gathered, is_first
from keras_bert_d2l.training.optimization.optimizers import add_gradient_norms, make_optimizer
from keras_bert_d2l.training.optimization.schedules import WarmupSchedule
from keras_bert_d2l.training.options import StepOptions
from keras_bert_d2l.training.report.report import RunRecorder
from keras_bert_d2l.training.run.callbacks import (
    GradientNorm,
    Interrupt,
    Printer,
    Progress,
    RunLog,
    StopAtNonFiniteLoss,
    Throughput,
    TrainingStage,
    diverged,
    interruptible,
    sync,
)
from keras_bert_d2l.training.run.run_folder import RunFolder, damaged
from keras_bert_d2l.types import Option

_SAVE_SECONDS = 300.0  # a killed process loses at most this much training
_VARIABLES, _OPTIMIZER, _METRICS = (
    f"{name}.safetensors" for name in ("variables", "optimizer", "metrics")
)

M = TypeVar("M", bound=BERTModel | TaskModel | ReplacedTokenDetection)
P = TypeVar("P", bound=Progress)


class TrainingLoop(abc.ABC, Generic[M, P]):
    """Training loop that trains a compiled model and writes its run folder.

    A subclass defines what a kind of run trains on, when it is over, and which evaluation is best.

    Args:
        run: The run folder.
        model: The model.
        progress: The progress of a new run.
        say: Prints messages and the progress.
    """

    command: ClassVar[str]

    def __init__(self, run: RunFolder, model: M, progress: P, say: Printer) -> None:
        self.run, self.model, self.progress, self.say = run, model, progress, say
        self.recorder = RunRecorder(run)

    @abc.abstractmethod
    def settings(self) -> dict[str, object]:
        """Return the options and data hashes that must be the same when the run resumes."""

    @abc.abstractmethod
    def is_over(self) -> bool:
        """Return whether the run is finished."""

    @abc.abstractmethod
    def position(self) -> tuple[str, int]:
        """Return the position as text and the number of remaining steps."""

    @abc.abstractmethod
    def train_rest(self, callbacks: Sequence[keras.callbacks.Callback], log: RunLog) -> None:
        """Train the remaining steps by calls of `fit`."""

    @property
    def result(self) -> Any:
        """The model that the run is for, which may be a part of what is trained."""
        return self.model

    def variables(self) -> Sequence[keras.Variable]:
        """Return the variables to save in addition to those of the optimizer."""
        variables: Sequence[keras.Variable] = self.model.variables
        return variables

    def save_model(self, folder: pathlib.Path) -> None:
        """Add further files to the training state."""

    def after_step(self, logs: Mapping[str, float], *, is_last: bool) -> None:
        """Record a step. It is the last one if an evaluation follows."""

    def after_epoch(self, logs: Mapping[str, float]) -> None:
        """Use the metrics of an evaluation before the other callbacks do."""

    def restore(self) -> None:
        """Read the training state from the run folder, and restore its logs.

        A killed process may have left metrics and samples of steps that are about to be repeated.

        Raises:
            ValueError: A file is missing or damaged, or the options, the data or the Keras backend
                of the run are different.
        """
        run = self.run
        (stored, of_run), settings = run.read_state(), self._all_settings()
        for name, value in of_run.items():
            if value != settings.get(name):
                raise ValueError(
                    f"The run {run.name!r} was started with {name}={shown(value)} and can only be "
                    f"resumed with it. Received: {name}={shown(settings.get(name))}. Use the same "
                    "options, data and Keras backend (KERAS_BACKEND), or start a new run from its "
                    "last or best checkpoint."
                )
        try:
            self.progress = type(self.progress)(**stored)
        except TypeError as error:
            raise damaged(run.state_file, error) from error
        for log in (run.metrics_file, run.records_file):
            saved = run.last / log.name
            has_file(log)  # raises an error for a named pipe, which is not replaced
            with replacing_file(log) as file:
                shutil.copyfile(saved if saved.exists() else os.devnull, file)
        _read_variables(run.last / _VARIABLES, self.variables())
        _read_variables(run.last / _OPTIMIZER, self.model.optimizer.variables)

    def save(self, *, metrics: bool = False) -> None:
        """Write the complete training state, so that the run can resume.

        Args:
            metrics: Also save the metrics since the last evaluation.

        Raises:
            FloatingPointError: A weight is not finite.
        """
        model, run = self.model, self.run
        sync(model)
        for weight in model.trainable_variables:
            if not keras.ops.all(keras.ops.isfinite(weight)):
                raise diverged(f"the weight {weight.path} is not finite", self.progress.step)
        if not is_first():
            return
        with replacing_folder(run.last) as folder:
            self.save_model(folder)
            _write_variables(folder / _VARIABLES, self.variables())
            _write_variables(folder / _OPTIMIZER, model.optimizer.variables)
            if metrics:
                _write_variables(folder / _METRICS, model.metrics_variables)
            for file in (run.metrics_file, run.records_file):
                if file.exists():
                    shutil.copy(file, folder)
            state = {**dataclasses.asdict(self.progress), "settings": self._all_settings()}
            write_json(folder / STATE_FILE, state, indent=None)

    def _all_settings(self) -> dict[str, Any]:
        """Return `settings` and the Keras backend, on which dropout depends, as JSON has them."""
        settings = {"backend": keras.backend.backend(), **self.settings()}
        found: dict[str, Any] = json.loads(json.dumps(settings))
        return found

    def train_interruptibly(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        """Train the remaining steps, if there are any, and save the run on a signal to stop.

        Raises:
            FloatingPointError: The loss is not finite; the last checkpoints are unchanged.
            TrainingInterrupted: There was a signal to stop; the state is saved.
        """
        if self.is_over():
            self.say(f"The run {self.run.name!r} is finished.")
            self.recorder.write(self.progress.step)  # it may have been killed before this
            return
        with (
            contextlib.closing(RunLog(self.run, self.progress)) as log,
            interruptible() as self.interrupt,
        ):
            self.train_rest(callbacks, log)

    def all_callbacks(
        self,
        callbacks: Sequence[keras.callbacks.Callback],
        work: Stage,
        batch_size: int,
        max_len: int | None,
        *further: keras.callbacks.Callback,
    ) -> list[keras.callbacks.Callback]:
        """Return the callbacks for calls of `fit` on batches of the same shape.

        Args:
            callbacks: Those of the user.
            work: The stage that shows the training.
            batch_size: Rows per batch, summed over all devices.
            max_len: Tokens per row. `None`: they vary.
            *further: Callbacks that read the logs before the run is saved.
        """
        throughput = Throughput(self.progress, batch_size, max_len)
        before = [StopAtNonFiniteLoss(self.progress), throughput, GradientNorm(), *further]
        shown = TrainingStage(work, self.position)
        return [*before, Saving(self, self.interrupt), *callbacks, shown]

    def keep_best(self) -> None:
        """Save the model as the best checkpoint, and its adapter if it has LoRA."""
        sync(self.model)
        if is_first():
            save_pretrained(self.result, self.run.best)
            if self.model.has_lora:
                save_adapter(self.model, self.run.adapter)

    def record(self, observe: Callable[[], Mapping[str, object]]) -> None:
        """Record what a function returns about an evaluation of the current model."""
        sync(self.model)
        self.recorder.add(self.progress.step, observe)

    def end_evaluation(self, observe: Callable[[], Mapping[str, object]]) -> None:
        """Record an evaluation, save the run and write its report."""
        self.record(observe)
        self.save()  # after the other files, so that a run that was killed before evaluates again
        self.recorder.write(self.progress.step)

    def check_interrupt(self) -> None:
        """Raise `TrainingInterrupted` if there was a signal. The state must be saved."""
        position, resume = self.position()[0], self.run.how_to_resume(self.command)
        self.interrupt.check(f"Stopped at {position}; the state is saved. {resume}")


def compile_for_run(
    model: BatchModel,
    options: StepOptions,
    schedule: WarmupSchedule,
    loss: Loss | None = None,
    *,
    layer_decay: float = 1.0,
    **arguments: Option,
) -> None:
    """Compile a model as the options of a run say. The optimizer is built."""
    model.compile(
        make_optimizer(options, schedule, model.compute_dtype, layer_decay),
        loss,
        micro_batches=options.micro_batches,
        remat=options.remat,
        # Without compilation, JAX would run the step one operation at a time.
        jit_compile=bool(options.jit) or keras.backend.backend() == "jax",
        **arguments,
    )
    model.optimizer.build(model.trainable_variables)
    add_gradient_norms(model.optimizer)


class Saving(keras.callbacks.Callback):
    """Callback that counts steps, and saves the run between evaluations: in time and on signals.

    Args:
        loop: The loop of the run.
        interrupt: The signal that stops the run, if there was one.

    Raises:
        TrainingInterrupted: There was a signal during a step; the state is saved.
    """

    def __init__(self, loop: TrainingLoop[Any, Any], interrupt: Interrupt) -> None:
        super().__init__()
        self.loop, self.interrupt = loop, interrupt

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        self._saved_at = time.monotonic()
        file = self.loop.run.last / _METRICS
        if file.exists():  # the run was stopped between two evaluations; Keras resets the metrics
            _read_variables(file, self.loop.model.metrics_variables)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        is_last = batch == self.params["steps"] - 1
        self.loop.after_step(logs or {}, is_last=is_last)
        if is_last:  # the state is saved after the evaluation
            return
        seconds = time.monotonic() - self._saved_at
        signal_number, seconds = gathered(self.interrupt.signal_number or 0, seconds).max(axis=0)
        if signal_number or seconds >= _SAVE_SECONDS:
            self.loop.save(metrics=True)
            self._saved_at = time.monotonic()
            self.loop.check_interrupt()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        self.loop.after_epoch(logs or {})


def _write_variables(file: pathlib.Path, variables: Sequence[keras.Variable]) -> None:
    values = map(keras.ops.convert_to_numpy, variables)
    safetensors.numpy.save_file({str(n): value for n, value in enumerate(values)}, file)


def _read_variables(file: pathlib.Path, variables: Sequence[keras.Variable]) -> None:
    try:
        stored: dict[str, Any] = safetensors.numpy.load_file(check_file(file))
        if len(stored) != len(variables):
            raise ValueError(f"it contains {len(stored)} variables instead of {len(variables)}")
        for index, variable in enumerate(variables):
            variable.assign(stored[str(index)])  # raises ValueError if the shape is different
    except (safetensors.SafetensorError, OSError, ValueError, KeyError) as error:
        raise damaged(file, error) from error
