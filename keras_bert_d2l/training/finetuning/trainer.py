"""The training loop of fine-tuning, and its progress: epochs, the best of them, learning curve."""

import dataclasses
import importlib.metadata
import math
import shlex
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import keras

from keras_bert_d2l.checkpoints.checks import tokenizer_of
from keras_bert_d2l.checkpoints.formats import native
from keras_bert_d2l.checkpoints.formats.checkpoint import task_fields
from keras_bert_d2l.checkpoints.saving import save_pretrained
from keras_bert_d2l.checkpoints.weights import load_weights
from keras_bert_d2l.checks import check_that
from keras_bert_d2l.files import write_checksums, write_json
from keras_bert_d2l.inference.calibration import calibrate
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.progress import stage
from keras_bert_d2l.training.devices import gathered, is_first, wait_for_all
from keras_bert_d2l.training.finetuning.data import TaskData, record_of_calibration
from keras_bert_d2l.training.finetuning.options import FinetuningOptions
from keras_bert_d2l.training.loop import TrainingLoop, compile_for_run
from keras_bert_d2l.training.optimization.optimizers import make_schedule
from keras_bert_d2l.training.run.callbacks import Metrics, Printer, Progress, RunLog
from keras_bert_d2l.training.run.run_folder import LOWER_IS_BETTER, RunFolder

_POINTS_PER_EPOCH = 25  # points of the training loss in the learning curve


@dataclasses.dataclass
class FinetuningProgress(Progress):
    """Progress of a fine-tuning run.

    Attributes:
        step: As for `Progress`.
        history: The metrics of each finished epoch; `None` marks a value that is not finite.
        best_epoch: The best of these epochs, counted from 1, or `None` if there is none yet.
        monitor: The metric that selects the best epoch.
        batch: Completed batches of the current epoch.
        points: The training loss within epochs, as pairs `(x, loss)`. `x` is the number of epochs
            done, including fractions, and `loss` the mean loss since the previous point.
        window: Batches of the epoch up to the last point, and their mean loss.
        warning: A warning that the best epoch has learned nothing, or `None`.
    """

    history: list[Metrics] = dataclasses.field(default_factory=list)
    best_epoch: int | None = None
    monitor: str = ""
    batch: int = 0
    points: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    window: tuple[int, float] = (0, 0.0)
    warning: str | None = None

    @property
    def best(self) -> Metrics | None:
        """The metrics of the best epoch so far."""
        return None if self.best_epoch is None else self.history[self.best_epoch - 1]

    def is_over(self, epochs: int, patience: int | None) -> bool:
        """Whether all epochs are done or the last `patience` epochs brought no improvement."""
        done = len(self.history)
        waited = done - (self.best_epoch or 0)
        return done >= epochs or waited >= (patience or math.inf)

    def add_point(self, num_batches: int, mean: float) -> None:
        """Add a point to the learning curve.

        Args:
            num_batches: Batches per epoch.
            mean: Mean loss of the current epoch so far.
        """
        before, mean_before = self.window
        loss = (mean * self.batch - mean_before * before) / (self.batch - before)
        if math.isfinite(loss):
            self.points.append((len(self.history) + self.batch / num_batches, loss))
        self.window = (self.batch, mean) if math.isfinite(mean) else (self.batch, 0.0)

    def add_epoch(self, metrics: Metrics) -> bool:
        """Record the metrics of an epoch and return whether it is the best so far."""
        best = self.best
        self.history.append(metrics)
        self.batch, self.window = 0, (0, 0.0)
        if metrics[self.monitor] is None:  # not finite
            return False
        if best is not None and self._rank(metrics) <= self._rank(best):
            return False
        self.best_epoch = len(self.history)
        return True

    def _rank(self, metrics: Metrics) -> tuple[float, float]:
        """Return a key that is larger for better epochs: the monitored metric, then the loss."""
        sign = -1 if self.monitor.endswith(LOWER_IS_BETTER) else 1
        loss = metrics.get("val_loss")
        return sign * cast(float, metrics[self.monitor]), -math.inf if loss is None else -loss


class Trainer(TrainingLoop[TaskModel, FinetuningProgress]):
    """Training loop that fine-tunes a task model: epochs, of which it keeps the best.

    Args:
        run: The run folder.
        options: The options of the run.
        model: The model. `Trainer` compiles it.
        data: The training and development data.
        say: Prints messages and the progress.
    """

    command = "finetune"

    def __init__(
        self,
        run: RunFolder,
        options: FinetuningOptions,
        model: TaskModel,
        data: TaskData,
        say: Printer,
    ) -> None:
        super().__init__(run, model, FinetuningProgress(), say)
        self.options, self.data = options, data
        self.calibration: dict[str, Any] | None = None
        model.uncalibrate()
        self._num_batches = int(data.train(0).cardinality())  # of an epoch
        steps = options.epochs * self._num_batches
        compile_for_run(
            model,
            options,
            make_schedule(options, int(options.warmup_ratio * steps), steps),
            data.loss,
            layer_decay=options.layer_decay,
            class_weights=options.class_weights,
        )

    def create(self) -> None:
        """Check the monitored metric and save the initial state before the first step."""
        if self.options.monitor is not None:
            metrics = self.model.evaluate(self.data.dev.take(1), verbose=0, return_dict=True)
            metrics |= self.data.score(self.model).metrics
            self._monitor({f"val_{name}" for name in metrics})
        self.save()

    def train(self, callbacks: Sequence[keras.callbacks.Callback]) -> dict[str, Any]:
        """Train the remaining epochs, then load the weights of the best epoch.

        Returns: the content of `metrics.json`.

        Raises:
            FloatingPointError: The loss is not finite; the last checkpoints are unchanged.
            ValueError: The monitored metric was never finite.
            TrainingInterrupted: There was a signal to stop; the state is saved.
        """
        self.say(f"Model: {_describe_model(self.model)}")
        self.train_interruptibly(callbacks)
        if not self.is_over():
            done = len(self.progress.history)
            self.say(f"A callback ended the run after epoch {done} of {self.options.epochs}.")
        if self.progress.best_epoch is None:
            raise ValueError(
                f"No epoch is the best, because {self.progress.monitor} was never finite. Choose a "
                "different `monitor`."
            )
        wait_for_all()  # the first process has saved the best epoch
        if self.progress.best_epoch != len(self.progress.history):
            best = native.describe(self.run.best)
            load_weights(self.model, best.table, best.arrays)
        if self.model.has_lora:
            self.model.merge_lora()
        if self.model.calibrated:
            with stage("Calibrating on the development data"):
                self._calibrate()
        self._say_result()
        return self._write_metrics()

    def _calibrate(self) -> None:
        """Calibrate the best epoch, save it, and record its evaluation again."""
        found = self.data.on_dev(calibrate, self.model)
        facts, drawn = record_of_calibration(found, self.model)
        self.calibration = facts
        step = int(cast(Metrics, self.progress.best)["step"] or 0)
        if found.temperature != 1 or found.thresholds:  # otherwise, all is as before
            if is_first():
                save_pretrained(self.model, self.run.best)
            evaluation = self.data.score(self.model)
            self.recorder.add(step, lambda: self.data.record(evaluation))
        self.recorder.add(step, lambda: {"calibration": {**facts, **drawn}})
        self.recorder.write(step)

    def train_rest(self, callbacks: Sequence[keras.callbacks.Callback], log: RunLog) -> None:
        described = {"model": {"Model": _describe_model(self.model)}}
        self.recorder.add_start(self.progress.step, described)
        with stage("Training", self.position()[1]) as work:
            every = self.all_callbacks(callbacks, work, self.options.batch_size, None)
            while not self.is_over():
                self._train_epoch(log, every)
                if not self.is_over():
                    self.check_interrupt()
                if self.model.stop_training:  # a callback has ended the run
                    return

    def _train_epoch(self, log: RunLog, callbacks: list[keras.callbacks.Callback]) -> None:
        """Train an epoch, or the remaining part of it, and record its metrics."""
        progress, epoch = self.progress, len(self.progress.history)
        train = self.data.train(epoch)
        if progress.batch:  # create the metric variables; `Saving` restores their values
            self.model.evaluate(self.data.dev.take(1), verbose=0)
        history = self.model.fit(
            train.skip(progress.batch) if progress.batch else train,
            initial_epoch=epoch,
            epochs=epoch + 1,  # each epoch has its own batches
            validation_data=self.data.dev,
            callbacks=callbacks,
            verbose=0,
        ).history
        with stage("Computing the metrics of the development data"):
            found = self.data.score(self.model)
        of_first = gathered(*map(float, found.metrics.values()))[0]  # the processes must agree
        scores = dict(zip((f"val_{k}" for k in found.metrics), of_first.tolist(), strict=True))
        metrics = {name: float(values[-1]) for name, values in history.items()} | scores
        metrics.pop("sequences/s", None)  # differs from machine to machine
        metrics["learning_rate"] = float(self.model.optimizer.learning_rate)
        progress.monitor = self._monitor(metrics)
        is_best = progress.add_epoch(log.write(metrics))
        if is_best:
            progress.warning = found.warning
            self.keep_best()
        self._write_metrics()
        self.end_evaluation(lambda: self.data.record(found, self.model if is_best else None))
        self._say_epoch(is_best, scores)

    def after_step(self, logs: Mapping[str, float], *, is_last: bool) -> None:
        progress = self.progress
        progress.batch += 1
        interval = math.ceil(self._num_batches / _POINTS_PER_EPOCH)
        if logs and (is_last or progress.batch % interval == 0):
            progress.add_point(self._num_batches, float(logs["loss"]))

    def position(self) -> tuple[str, int]:
        progress, epochs = self.progress, self.options.epochs
        done = len(progress.history)
        text = f"epoch {done + 1}/{epochs}, step {progress.batch:,}/{self._num_batches:,}"
        return text, (epochs - done) * self._num_batches - progress.batch

    def settings(self) -> dict[str, object]:
        tokenizer = tokenizer_of(self.model)
        return {
            **self._own_options(),
            "model": self.model.bert_config.to_dict(),
            "task": task_fields(self.model),
            "tokenizer": {**tokenizer.options, "vocab": tokenizer.vocab.fingerprint},
            "data": self.data.fingerprint,
        }

    def _own_options(self) -> dict[str, object]:
        """Return the options without those of a run on files, which `run.yaml` has."""
        names = (field.name for field in dataclasses.fields(FinetuningOptions))
        return {name: getattr(self.options, name) for name in names}

    def is_over(self) -> bool:
        return self.progress.is_over(self.options.epochs, self.options.patience)

    def _monitor(self, known: Iterable[str]) -> str:
        """Return the name of the metric that selects the best epoch."""
        monitor = self.options.monitor
        if monitor is None:
            return next(name for name in (*self.data.monitors, "val_loss") if name in known)
        check_that(monitor in known, "monitor", f"one of {', '.join(sorted(known))}", monitor)
        return monitor

    def _write_metrics(self) -> dict[str, Any]:
        metrics = {
            "monitor": self.progress.monitor,
            "best_epoch": self.progress.best_epoch,
            "best": self.progress.best,
            "calibration": self.calibration,
            "warning": self.progress.warning,
            "history": self.progress.history,
            "options": self._own_options(),
            "version": importlib.metadata.version("keras-bert-d2l"),
            "seed": self.options.seed,
            **self.data.facts,
        }
        listed = [self.run.options_file.name] if self.run.options_file.is_file() else []
        write_checksums(self.run.path, listed)  # otherwise a kill would leave an outdated checksum
        write_json(self.run.summary_file, metrics)
        write_checksums(self.run.path, [*listed, self.run.summary_file.name])
        return metrics

    def _say_epoch(self, is_best: bool, scores: Iterable[str]) -> None:
        progress, metrics = self.progress, self.progress.history[-1]
        texts = {
            name: "not finite" if value is None else f"{value:.4f}"
            for name, value in metrics.items()
        }
        names = dict.fromkeys([progress.monitor, *scores, "val_loss"])
        found = ", ".join(f"{name.removeprefix('val_')} {texts[name]}" for name in names)
        ending = "best so far" if is_best else f"not better than epoch {progress.best_epoch}"
        if progress.best_epoch is None:
            ending = "no finite metric to compare"
        line = (
            f"Epoch {len(progress.history)}/{self.options.epochs}: loss {texts['loss']}; "
            f"development data: {found}; {ending}"
        )
        self.say(textwrap.fill(line, 79, subsequent_indent="  "))

    def _say_result(self) -> None:
        monitor, run = self.progress.monitor, shlex.quote(self.run.name)
        value = cast(dict[str, float], self.progress.best)[monitor]
        self.say(
            f"Best epoch: {self.progress.best_epoch}, {monitor.removeprefix('val_')} {value:.4f} "
            "on the development data."
        )
        if (found := self.calibration) is not None:
            divisor, (before, after) = found["temperature"], found["expected_calibration_error"]
            change = f"{after:.4f} instead of {before:.4f}" if divisor != 1 else f"{after:.4f}"
            self.say(f"Temperature {divisor:.3f}: expected calibration error {change}.")
        if (warning := self.progress.warning) is not None:
            self.say(textwrap.fill(f"Warning: {warning}", 79, subsequent_indent="  "))
        self.say(
            f"The model is in {self.run.best}.\n"
            f"Curves, predictions and errors: {self.run.report}\n"
            "To evaluate or use the model:\n"
            f"  keras-bert-d2l evaluate --model {run} --data FILE\n"
            f"  keras-bert-d2l {self.model.command} --model {run}"
        )


def _describe_model(model: TaskModel) -> str:
    trained = sum(math.prod(weight.shape) for weight in model.trainable_variables)
    return (
        f"{type(model).__name__}, {model.count_params():,} weights, {trained:,} of them "
        f"trainable, {model.dtype_policy.name}"
    )
