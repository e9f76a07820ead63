"""Fine-tuning: the model of a task and examples of it in, a run folder with the best model out."""

import contextlib
import dataclasses
import importlib.metadata
import json
import math
import os
import pathlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Unpack

import keras
import tensorflow as tf

from keras_bert_d2l.checkpoints.formats import native
from keras_bert_d2l.checkpoints.saving import save_pretrained
from keras_bert_d2l.checkpoints.weights.transfer import load_weights
from keras_bert_d2l.data.tasks.examples import TaskExamples
from keras_bert_d2l.files import write_text
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.training.callbacks import Progress, RunLog, TrainingInterrupted, interruptible
from keras_bert_d2l.training.finetuning.curves import draw_curves, new_figure
from keras_bert_d2l.training.finetuning.data import Batches, TaskData, batches_of, prepare
from keras_bert_d2l.training.finetuning.options import FinetuningArguments, FinetuningOptions
from keras_bert_d2l.training.finetuning.state import (
    TaskState,
    restore_metrics,
    restore_state,
    save_state,
)
from keras_bert_d2l.training.optimizers import BERTAdamW, WarmupLinearDecay
from keras_bert_d2l.training.pretraining.run_folder import BEST, OPTIONS_FILE
from keras_bert_d2l.training.verbosity import Verbose, printer, verbosity

METRICS_JSON, CURVES = "metrics.json", "curves.png"
RESUME_HINT = " Go on with `resume=True`."
_SAVE_SECONDS = 300.0  # what a process that is killed loses at most
_NULL_THRESHOLD = "val_null_threshold"  # of `evaluate`, for the development data
_POINTS = 25  # of the training loss in an epoch


class FinetuningResult(NamedTuple):
    """What `finetune` returns.

    Attributes:
        model: The model, with the weights of the best epoch.
        metrics: What `metrics.json` holds.
    """

    model: TaskModel
    metrics: dict[str, Any]


def finetune(
    model: TaskModel,
    train: TaskExamples | Batches,
    dev: TaskExamples | tf.data.Dataset,
    run_dir: str | os.PathLike[str],
    *,
    score: Callable[[TaskModel], Mapping[str, float]] | None = None,
    facts: Mapping[str, Any] | None = None,
    resume: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    verbose: Verbose = "auto",
    **options: Unpack[FinetuningArguments],
) -> FinetuningResult:
    """Trains the model of a task, and keeps the epoch that does best on development data.

    The rate rises over the first steps and then falls to 0, as in Devlin et al. 2019. After each
    epoch the development data are evaluated. The run folder gets `best/`, a checkpoint that
    `load_pretrained` reads, `last/`, the whole state of training, `metrics.json`, `metrics.jsonl`
    (a line an epoch), `curves.png` and `tensorboard/`.

    Ctrl-C ends the run after the present step and saves it; a second Ctrl-C ends it at once. With
    `resume` it goes on from there, and ends with the weights that it would have had undisturbed.
    The state is saved every five minutes as well, and after each epoch: a run that is killed
    goes on from there.

    Args:
        model: The model; its tokenizer, if it has one, is saved with it.
        train: What `read_examples` returns. Or batches `(features, labels)` or `(features,
            labels, weights)`, once through the data; or a function that makes them for the number
            of an epoch, from 0. Of a data set that shuffles, a run that is resumed sees another
            order than it would have seen.
        dev: The development data, as examples or as batches.
        run_dir: The folder of the run, new or empty; with `resume` that of the run.
        score: Called after each epoch for further figures of the development data, by name,
            which get `val_` in front; and before the first, where `monitor` may be one of them.
        facts: What is to stand in `metrics.json` as well.
        resume: Whether to go on with the run in `run_dir`. The model has to be made as it was,
            and the options and the data have to be the same.
        callbacks: Further Keras callbacks; each epoch is a call of `fit`. One that sets
            `model.stop_training` ends the run: its last epoch counts as far as it got, and
            `resume` goes on with the next one. `EarlyStopping` counts the epochs of one call:
            take `patience`.
        verbose: As in `keras.Model.fit`.
        **options: The fields of `FinetuningOptions`. Of `monitor`, a higher value is better unless
            the name ends in loss, entropy or error; ties go to the lower `val_loss`. Without data
            that have a metric of their own, `monitor` defaults to `val_accuracy`, or `val_loss`.

    Returns: the model and the figures.

    Raises:
        ValueError: An option is unknown or out of its range, the examples are not of the model's
            task and labels, there are no batches or no end of them, the training diverges from
            the start, or `resume` finds other options or data.
        FileExistsError: `run_dir` holds anything, but `resume` is not set.
        FileNotFoundError: There is no run to resume.
        ImportError: A library of the extra `[tasks]` is not installed.
        TrainingInterrupted: A `KeyboardInterrupt`, after Ctrl-C.

    Example:

    ```python
    train, dev = (read_examples("classify", f"{name}.tsv") for name in ("train", "dev"))
    model = load_task(SequenceClassifier, "minilm", labels=train.label_names).model
    finetune(model, train, dev, "runs/reviews", learning_rate=5e-5, layer_decay=0.9)
    ```
    """
    settings = FinetuningOptions.from_dict(options)
    run, say = pathlib.Path(run_dir), printer(verbose)
    if not resume:
        check_new(run)
    try:
        new_figure()
    except ImportError as error:  # a run does not end for a picture
        say(str(error))
    data = prepare(model, train, dev, settings, say)
    if score is not None:
        data = data.with_score(score)
    _compile(model, settings, int(batches_of(data.train, 0).cardinality()))
    if not resume:
        _check_monitor(model, data, settings)
    fixed = {**dataclasses.asdict(settings), "data": data.fingerprint}
    state = restore_state(run, model, fixed) if resume else TaskState()
    if not resume:
        run.mkdir(parents=True, exist_ok=True)
        save_state(run, model, state, fixed)
    say(_describe_model(model))
    progress = Progress(step=int(model.optimizer.iterations))
    facts = {"seed": settings.seed, **data.facts, **(facts or {})}
    with (
        contextlib.closing(RunLog(run, progress)) as log,
        interruptible() as interrupt,
    ):
        steps, ending = _Steps(run, model, state, fixed, interrupt), _EpochEnd()
        if resume:  # an epoch that is to be done again may have left its line
            lines = [json.dumps(line) + "\n" for line in state.history]
            write_text(log.path, "".join(lines))
        while not (ending.is_asked_for or state.is_over(settings.epochs, settings.patience)):
            figures, scores = _train_epoch(
                model, data, settings.epochs, steps, [*callbacks, ending], verbose
            )
            figures |= scores
            progress.step = int(model.optimizer.iterations)
            state.monitor = _monitor(settings, data, figures)
            is_best = state.add_epoch({"step": progress.step, **_finite(figures)})
            if is_best:
                save_pretrained(model, run / BEST)
            steps.save()
            log.write(figures)
            _write_metrics(run, state, settings, facts)
            _draw(run, state)
            say(_describe_epoch(state, is_best, scores))
            if interrupt.is_set() and not state.is_over(settings.epochs, settings.patience):
                done = f"Stopped after epoch {len(state.history)} of {settings.epochs}, and saved."
                raise TrainingInterrupted(done + RESUME_HINT)
    if ending.is_asked_for and not state.is_over(settings.epochs, settings.patience):
        say(f"A callback ended the run after epoch {len(state.history)} of {settings.epochs}.")
    if state.best_epoch is None:
        raise ValueError(
            f"The training diverged: {state.monitor} was never a number. Received: learning_rate="
            f"{settings.learning_rate}; lower it."
        )
    metrics = _write_metrics(run, state, settings, facts)
    if state.best_epoch != len(state.history) or resume:
        best = native.describe(run / BEST)
        load_weights(model, best.table, best.arrays)
    return FinetuningResult(model, metrics)


class _Steps(keras.callbacks.Callback):
    """Counts the steps of an epoch, notes their loss, and saves, at Ctrl-C and from time to time.

    Raises:
        TrainingInterrupted: After a step, when `interrupt` was set; the state is saved.
    """

    def __init__(
        self,
        run: pathlib.Path,
        model: TaskModel,
        state: TaskState,
        settings: dict[str, Any],
        interrupt: threading.Event,
    ) -> None:
        super().__init__()
        self.run, self.state, self.settings, self.interrupt = run, state, settings, interrupt
        self.trained = model
        self.num_batches = 0  # of the epoch
        self._saved_at = time.monotonic()

    def save(self) -> None:
        save_state(self.run, self.trained, self.state, self.settings)
        self._saved_at = time.monotonic()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self.state.batch:
            restore_metrics(self.run, self.trained)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        state = self.state
        state.batch += 1
        is_last = state.batch == self.num_batches
        if logs and (is_last or state.batch % math.ceil(self.num_batches / _POINTS) == 0):
            state.add_point(self.num_batches, float(logs["loss"]))
        if is_last:  # what follows the epoch saves it
            return
        if self.interrupt.is_set():
            self.save()
            raise TrainingInterrupted(
                f"Stopped in epoch {len(state.history) + 1} of {self.settings['epochs']} after "
                f"step {state.batch:,} of {self.num_batches:,}, and saved.{RESUME_HINT}"
            )
        if time.monotonic() - self._saved_at >= _SAVE_SECONDS:
            self.save()


class _EpochEnd(keras.callbacks.Callback):
    """Ends a call of `fit` after an epoch, and notes whether a callback before it wants the end."""

    is_asked_for = False

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.is_asked_for = self.model.stop_training
        self.model.stop_training = True  # the next epoch has batches of its own


def _compile(model: TaskModel, options: FinetuningOptions, steps_per_epoch: int) -> None:
    steps = options.epochs * steps_per_epoch
    schedule = WarmupLinearDecay(options.learning_rate, int(options.warmup * steps), steps)
    optimizer = BERTAdamW(
        schedule, weight_decay=options.weight_decay, layer_decay=options.layer_decay
    )
    model.compile(optimizer, class_weights=options.class_weights, jit_compile=options.jit)
    model.optimizer.build(model.trainable_variables)


def _train_epoch(
    model: TaskModel,
    data: TaskData,
    epochs: int,
    steps: _Steps,
    callbacks: Sequence[keras.callbacks.Callback],
    verbose: Verbose,
) -> tuple[dict[str, float], dict[str, float]]:
    """Does an epoch, or what is left of it, and returns Keras's figures and the scores."""
    epoch, done = len(steps.state.history), steps.state.batch
    train = batches_of(data.train, epoch)
    steps.num_batches = int(train.cardinality())
    if done:  # makes the variables of the metrics, which `_Steps` gives their values back
        model.evaluate(data.dev.take(1), verbose=0)
    history = model.fit(
        train.skip(done) if done else train,
        initial_epoch=epoch,
        epochs=epochs,  # `_EpochEnd` ends the call after one
        validation_data=data.dev,
        callbacks=[steps, *callbacks],
        verbose=verbosity(verbose),
    ).history
    scores = {f"val_{name}": float(value) for name, value in data.score(model).items()}
    return {name: float(values[-1]) for name, values in history.items()}, scores


def _check_monitor(model: TaskModel, data: TaskData, options: FinetuningOptions) -> None:
    """Refuses a figure that there will not be, before an epoch is trained."""
    if options.monitor is None:
        return
    of_batch = model.evaluate(data.dev.take(1), verbose=0, return_dict=True)
    known = {f"val_{name}" for name in of_batch}
    if options.monitor not in known:  # the scores may take long
        known |= {f"val_{name}" for name in data.sample(model)}
    if options.monitor not in known:
        raise _unknown_monitor(options.monitor, known)


def _unknown_monitor(monitor: str, known: Iterable[str]) -> ValueError:
    return ValueError(
        f"`monitor` must be one of {', '.join(sorted(known))}. Received: monitor={monitor!r}."
    )


def _monitor(options: FinetuningOptions, data: TaskData, figures: Mapping[str, float]) -> str:
    if options.monitor is None:
        return next(name for name in (*data.monitors, "val_loss") if name in figures)
    if options.monitor not in figures:
        raise _unknown_monitor(options.monitor, figures)
    return options.monitor


def _finite(figures: Mapping[str, float]) -> dict[str, float | None]:
    """Returns the figures as JSON has them, `None` for what is no finite number."""
    return {name: v if math.isfinite(v) else None for name, v in figures.items()}


def _write_metrics(
    run: pathlib.Path, state: TaskState, options: FinetuningOptions, facts: Mapping[str, Any]
) -> dict[str, Any]:
    metrics = {
        "monitor": state.monitor,
        "best_epoch": state.best_epoch,
        "best": None if state.best_epoch is None else state.history[state.best_epoch - 1],
        "history": state.history,
        "options": dataclasses.asdict(options),
        "version": importlib.metadata.version("keras-bert-d2l"),
        **facts,
    }
    write_text(run / METRICS_JSON, json.dumps(metrics, indent=2) + "\n")
    return metrics


def _draw(run: pathlib.Path, state: TaskState) -> None:
    with contextlib.suppress(ImportError):  # which was said at the beginning
        draw_curves(
            run / CURVES,
            state.history,
            points=state.points,
            monitor=state.monitor,
            best_epoch=state.best_epoch,
            title=run.name,
        )


def _describe_model(model: TaskModel) -> str:
    trained = sum(math.prod(weight.shape) for weight in model.trainable_variables)
    return (
        f"Model: {type(model).__name__}, {model.count_params():,} weights, {trained:,} of them "
        f"trained, {model.dtype_policy.name}"
    )


def _describe_epoch(state: TaskState, is_best: bool, scores: Iterable[str]) -> str:
    figures = state.history[-1]
    names = dict.fromkeys((state.monitor, *scores, "val_loss"))
    listed = ", ".join(
        f"{name.removeprefix('val_').replace('_', ' ')} "
        + ("not a number" if figures[name] is None else f"{figures[name]:.4f}")
        for name in names
    )
    ending = "the best so far" if is_best else f"not better than epoch {state.best_epoch}"
    if state.best_epoch is None:
        ending = "no figure to go by"
    return f"Development data after epoch {len(state.history)}: {listed}; {ending}"


def tuned_null_threshold(run_dir: str | os.PathLike[str]) -> float | None:
    """Returns the threshold of no answer that did best on the development data of a run.

    `None`: the folder is no run of fine-tuning, or one whose questions all have answers.
    """
    file = pathlib.Path(run_dir, METRICS_JSON)
    if not file.is_file():
        return None
    best = json.loads(file.read_text(encoding="utf-8"))["best"]
    return None if best is None else best.get(_NULL_THRESHOLD)


def check_new(run: pathlib.Path) -> None:
    """Raises `FileExistsError` where a folder is not free for a new run."""
    if run.exists() and (not run.is_dir() or any(f.name != OPTIONS_FILE for f in run.iterdir())):
        raise FileExistsError(
            f"{os.fspath(run)!r} is not empty: name another folder for the run, or go on with the "
            "run in it by resume=True."
        )
