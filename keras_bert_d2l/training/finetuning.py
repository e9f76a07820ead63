"""Fine-tuning: the model of a task and batches for it in, a run folder with the best model out."""

import contextlib
import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import keras
import tensorflow as tf

from keras_bert_d2l.checkpoints import native
from keras_bert_d2l.checkpoints.conversion import load_weights
from keras_bert_d2l.checkpoints.pretrained import save_pretrained
from keras_bert_d2l.files import replacing_folder, write_text
from keras_bert_d2l.models.task_model import TaskModel
from keras_bert_d2l.training.callbacks import Progress, RunLog
from keras_bert_d2l.training.optimizers import BERTAdamW, WarmupLinearDecay
from keras_bert_d2l.training.run_folder import mend
from keras_bert_d2l.training.variables import damaged, read_variables, write_variables

METRICS_JSON = "metrics.json"
_BEST, _LAST = "best", "last"
_STATE_FILE = "training_state.json"
_VARIABLES_FILE, _OPTIMIZER_FILE = "variables.safetensors", "optimizer.safetensors"
_LOWER_IS_BETTER = ("loss", "entropy", "error")

Batches: TypeAlias = tf.data.Dataset | Callable[[int], tf.data.Dataset]


class FinetuningResult(NamedTuple):
    """What `finetune` returns.

    Attributes:
        model: The model, with the weights of the best epoch.
        metrics: What `metrics.json` holds.
    """

    model: TaskModel
    metrics: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class _Options:
    """What a run that goes on has to have as it had it."""

    epochs: int
    learning_rate: float
    warmup: float
    weight_decay: float
    layer_decay: float
    class_weights: dict[str, float] | None
    monitor: str | None
    patience: int | None

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("patience", 1)):
            value = getattr(self, name)
            is_none = value is None and name == "patience"
            if not is_none and (isinstance(value, bool) or not isinstance(value, int)):
                raise ValueError(f"`{name}` must be an integer. Received: {name}={value!r}.")
            if not is_none and value < least:
                raise ValueError(f"`{name}` must be at least {least}. Received: {name}={value}.")
        if not 0 <= self.warmup < 1:
            raise ValueError(
                f"`warmup` is a share of the steps, in [0, 1). Received: warmup={self.warmup!r}."
            )


@dataclasses.dataclass
class _State:
    """How far a run is: the figures of each epoch, the best of them, and what it is best by."""

    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    best_epoch: int | None = None  # from 1
    monitor: str = ""

    def is_over(self, options: _Options) -> bool:
        epochs = len(self.history)
        waited = epochs - (self.best_epoch or 0)
        return epochs >= options.epochs or waited >= (options.patience or math.inf)

    def add(self, figures: dict[str, Any]) -> bool:
        """Takes the figures of one more epoch, and tells whether it is the best so far."""
        self.history.append(figures)
        value = figures[self.monitor]
        if value is None:  # not a number
            return False
        sign = -1 if self.monitor.endswith(_LOWER_IS_BETTER) else 1
        if self.best_epoch is not None:
            best = self.history[self.best_epoch - 1][self.monitor]
            if sign * value <= sign * best:
                return False
        self.best_epoch = len(self.history)
        return True


def finetune(
    model: TaskModel,
    train: Batches,
    dev: tf.data.Dataset,
    run_dir: str | os.PathLike[str],
    *,
    epochs: int = 3,
    learning_rate: float = 5e-5,
    warmup: float = 0.1,
    weight_decay: float = 0.01,
    layer_decay: float = 1.0,
    class_weights: Mapping[str, float] | None = None,
    monitor: str | None = None,
    score: Callable[[TaskModel], Mapping[str, float]] | None = None,
    patience: int | None = None,
    facts: Mapping[str, Any] | None = None,
    resume: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    verbose: Literal["auto"] | int = "auto",
) -> FinetuningResult:
    """Trains the model of a task, and keeps the epoch that does best on development data.

    The rate rises over the first steps and then falls to 0, as in Devlin et al. 2019. The run
    folder gets `best/`, a checkpoint that `load_pretrained` reads, `last/`, the whole state of
    training, `metrics.json`, `metrics.jsonl` (a line an epoch) and `tensorboard/`.

    Args:
        model: The model; its tokenizer, if it has one, is saved with it.
        train: Batches `(features, labels)` or `(features, labels, weights)`, once through the
            data; or a function that makes them for the number of an epoch, from 0. With a
            function of this number alone a run that is resumed sees what it would have seen.
        dev: Batches of the development data.
        run_dir: The folder of the run, new or empty; with `resume` that of the run.
        epochs: How often to go through `train`.
        learning_rate: Its peak.
        warmup: Share of all steps in which the rate rises.
        weight_decay: Of `BERTAdamW`.
        layer_decay: Of `BERTAdamW`; below 1 lower blocks learn more slowly.
        class_weights: Weights of labels in the loss, by name.
        monitor: The figure by which an epoch is the best, for instance `"val_f1"`; higher is
            better unless it ends in loss, entropy or error. `None`: `val_accuracy`, where the
            task has it, else `val_loss`.
        score: Called after each epoch for further figures of the development data, by name,
            which get `val_` in front.
        patience: Stop after so many epochs without a better one; `None`: do all.
        facts: What is to stand in `metrics.json` as well: a seed, the hash of the data.
        resume: Whether to go on with the run in `run_dir` after its last whole epoch. The model
            has to be made as it was, and the options have to be the same.
        callbacks: Further Keras callbacks; each epoch is a call of `fit`.
        verbose: As in `keras.Model.fit`.

    Returns: the model and the figures.

    Raises:
        ValueError: An option is out of its range, there are no batches or no end of them, the
            training diverges from the start, or `resume` finds other options.
        FileExistsError: `run_dir` holds anything, but `resume` is not set.
        FileNotFoundError: There is no run to resume.

    Example:

    ```python
    model = load_task(SequenceClassifier, "minilm", labels=["bad", "good"]).model
    finetune(model, train, dev, "runs/reviews", learning_rate=5e-5, layer_decay=0.9)
    ```
    """
    weights = None if class_weights is None else dict(class_weights)
    options = _Options(
        epochs,
        learning_rate,
        warmup,
        weight_decay,
        layer_decay,
        weights,
        monitor,
        patience,
    )
    run = pathlib.Path(run_dir)
    if not resume:
        _check_new(run)
    dev = _counted(dev)
    train = train if callable(train) else _counted(train)
    _compile(model, options, int(_of_epoch(train, 0).cardinality()))
    state = _restore(run, model, options) if resume else _State()
    progress = Progress(step=int(model.optimizer.iterations))
    with contextlib.closing(RunLog(run, progress)) as log:
        if resume:  # an epoch that is to be done again may have left its line
            lines = [json.dumps(line) + "\n" for line in state.history]
            write_text(log.path, "".join(lines))
        while not state.is_over(options):
            figures = _train_epoch(model, train, dev, len(state.history), callbacks, verbose)
            if score is not None:
                figures |= {f"val_{name}": float(value) for name, value in score(model).items()}
            progress.step = int(model.optimizer.iterations)
            state.monitor = _monitor(options, figures)
            if state.add({"step": progress.step, **_finite(figures)}):
                save_pretrained(model, run / _BEST)
            _save_last(run, model, state, options)
            log.write(figures)
            _write_metrics(run, state, options, facts)
    if state.best_epoch is None:
        raise ValueError(
            f"The training diverged: {state.monitor} was never a number. Received: learning_rate="
            f"{learning_rate}; lower it."
        )
    metrics = _write_metrics(run, state, options, facts)
    if state.best_epoch != len(state.history) or resume:
        best = native.describe(run / _BEST)
        load_weights(model, best.table, best.tensors)
    return FinetuningResult(model, metrics)


def _of_epoch(train: Batches, epoch: int) -> tf.data.Dataset:
    return _counted(train(epoch)) if callable(train) else train


def _counted(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns a data set that knows the number of its batches, which Keras warns of otherwise.

    To find it out it may have to go through them once.
    """
    number = int(dataset.cardinality())
    if number == tf.data.UNKNOWN_CARDINALITY:
        number = int(dataset.reduce(tf.constant(0, tf.int64), lambda count, *_: count + 1))
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(number))
    if number in (tf.data.INFINITE_CARDINALITY, 0):
        raise ValueError(
            "`train` and `dev` must be batches, once through the data. Received: a data set "
            + ("without an end; leave out `.repeat()`." if number else "without a batch.")
        )
    return dataset


def _compile(model: TaskModel, options: _Options, steps_per_epoch: int) -> None:
    steps = options.epochs * steps_per_epoch
    schedule = WarmupLinearDecay(options.learning_rate, int(options.warmup * steps), steps)
    optimizer = BERTAdamW(
        schedule, weight_decay=options.weight_decay, layer_decay=options.layer_decay
    )
    model.compile(optimizer, class_weights=options.class_weights)
    model.optimizer.build(model.trainable_variables)


def _train_epoch(
    model: TaskModel,
    train: Batches,
    dev: tf.data.Dataset,
    epoch: int,
    callbacks: Sequence[keras.callbacks.Callback],
    verbose: Literal["auto"] | int,
) -> dict[str, float]:
    history = model.fit(
        _of_epoch(train, epoch),
        initial_epoch=epoch,
        epochs=epoch + 1,
        validation_data=dev,
        callbacks=list(callbacks),
        verbose=verbose,
    ).history
    return {name: float(values[-1]) for name, values in history.items()}


def _monitor(options: _Options, figures: Mapping[str, float]) -> str:
    if options.monitor is None:
        return "val_accuracy" if "val_accuracy" in figures else "val_loss"
    if options.monitor not in figures:
        raise ValueError(
            f"`monitor` must be one of {sorted(figures)}. Received: {options.monitor!r}."
        )
    return options.monitor


def _finite(figures: Mapping[str, float]) -> dict[str, float | None]:
    """Returns the figures as JSON has them, `None` for what is no finite number."""
    return {name: v if math.isfinite(v) else None for name, v in figures.items()}


def _write_metrics(
    run: pathlib.Path, state: _State, options: _Options, facts: Mapping[str, Any] | None
) -> dict[str, Any]:
    metrics = {
        "monitor": state.monitor,
        "best_epoch": state.best_epoch,
        "best": None if state.best_epoch is None else state.history[state.best_epoch - 1],
        "history": state.history,
        "options": dataclasses.asdict(options),
        **(facts or {}),
    }
    write_text(run / METRICS_JSON, json.dumps(metrics, indent=2) + "\n")
    return metrics


def _check_new(run: pathlib.Path) -> None:
    if run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise FileExistsError(
            f"{os.fspath(run)!r} is not empty: name another folder for the run, or go on with the "
            "run in it by resume=True."
        )
    run.mkdir(parents=True, exist_ok=True)


def _save_last(run: pathlib.Path, model: TaskModel, state: _State, options: _Options) -> None:
    stored = {**dataclasses.asdict(state), "options": dataclasses.asdict(options)}
    with replacing_folder(run / _LAST) as folder:
        write_variables(folder / _VARIABLES_FILE, model.variables)
        write_variables(folder / _OPTIMIZER_FILE, model.optimizer.variables)
        write_text(folder / _STATE_FILE, json.dumps(stored) + "\n")


def _restore(run: pathlib.Path, model: TaskModel, options: _Options) -> _State:
    """Gives a compiled model the state of the run's last whole epoch."""
    for name in (_BEST, _LAST):
        mend(run / name)
    file = run / _LAST / _STATE_FILE
    if not file.is_file():
        raise FileNotFoundError(
            f"{os.fspath(run)!r} holds no run that could be resumed: it has no whole epoch."
        )
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        of_run = stored.pop("options")
        state = _State(**stored)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(file, error) from error
    for name, value in dataclasses.asdict(options).items():
        if of_run.get(name) != value:
            raise ValueError(
                f"The run {os.fspath(run)!r} has {name}={of_run.get(name)!r} and goes on with its "
                f"own options. Received: {name}={value!r}."
            )
    read_variables(run / _LAST / _VARIABLES_FILE, model.variables)
    read_variables(run / _LAST / _OPTIMIZER_FILE, model.optimizer.variables)
    return state
