"""Save and restore the training state of a fine-tuning run, so that it resumes exactly.

`last/` contains the variables of the model (including the dropout seeds), of the optimizer and of
the current epoch's metrics, and `training_state.json` with the progress.
"""

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from typing import Any, cast

from keras_bert_d2l.files import replacing_folder, write_text
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.training.callbacks import Progress
from keras_bert_d2l.training.run_folder import OPTIMIZER_FILE, STATE_FILE, RunFolder
from keras_bert_d2l.training.variable_files import damaged, read_variables, sync, write_variables

_VARIABLES, _METRICS = "variables.safetensors", "metrics.safetensors"
_LOWER_IS_BETTER = ("loss", "entropy", "error")

Metrics = dict[str, float | None]


@dataclasses.dataclass
class FinetuningProgress(Progress):
    """Progress of a fine-tuning run.

    Attributes:
        step: Number of completed optimizer steps.
        history: The metrics of each finished epoch; `None` marks a value that is not finite.
        best_epoch: The best of these epochs, counted from 1, or `None` if there is none yet.
        monitor: The metric that selects the best epoch.
        batch: Completed batches of the current epoch.
        points: The training loss within epochs, as pairs `(x, loss)`. `x` is the number of epochs
            done, including fractions, and `loss` the mean loss since the previous point.
        window: Batches of the epoch up to the last point, and their mean loss.
    """

    history: list[Metrics] = dataclasses.field(default_factory=list)
    best_epoch: int | None = None
    monitor: str = ""
    batch: int = 0
    points: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    window: tuple[int, float] = (0, 0.0)

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
        sign = -1 if self.monitor.endswith(_LOWER_IS_BETTER) else 1
        loss = metrics.get("val_loss")
        return sign * cast(float, metrics[self.monitor]), -math.inf if loss is None else -loss


def save_state(
    run: RunFolder,
    model: TaskModel,
    progress: FinetuningProgress,
    settings: Mapping[str, object],
) -> None:
    """Write the training state to `last/`.

    Args:
        run: The run folder.
        model: The compiled model.
        progress: The progress of the run.
        settings: Options and data hashes that must be the same when the run resumes.
    """
    sync(model)
    with replacing_folder(run.last) as folder:
        write_variables(folder / _VARIABLES, model.variables)
        write_variables(folder / OPTIMIZER_FILE, model.optimizer.variables)
        if progress.batch:
            write_variables(folder / _METRICS, model.metrics_variables)
        state = {**dataclasses.asdict(progress), "settings": settings}
        write_text(folder / STATE_FILE, json.dumps(state) + "\n")


def restore_state(
    run: RunFolder, model: TaskModel, settings: Mapping[str, object]
) -> FinetuningProgress:
    """Restore a compiled model from `last/`, except for the metrics of the current epoch.

    Returns: the progress of the run.

    Raises:
        FileNotFoundError: The folder contains no run to resume.
        ValueError: A file is damaged, or the settings of the run are different.
    """
    run.repair()
    if not run.state_file.is_file():
        raise FileNotFoundError(
            f"{os.fspath(run)!r} does not contain a run to resume: "
            f"{run.last.name}/{STATE_FILE} is missing."
        )
    stored: dict[str, Any] = run.read_state()
    try:
        of_run = dict(stored.pop("settings"))
        progress = FinetuningProgress(**stored)
        progress.points = [(float(x), float(y)) for x, y in progress.points]
        progress.window = (int(progress.window[0]), float(progress.window[1]))
    except (ValueError, TypeError, KeyError) as error:
        raise damaged(run.state_file, error) from error
    for name, value in settings.items():
        if of_run.get(name) != value:
            raise ValueError(
                f"The run {os.fspath(run)!r} has {name}={of_run.get(name)!r:.200} and resumes with "
                f"its own options and data. Received: {name}={value!r:.200}."
            )
    read_variables(run.last / _VARIABLES, model.variables)
    read_variables(run.last / OPTIMIZER_FILE, model.optimizer.variables)
    # The state file only records the step at the end of the last epoch.
    progress.step = int(model.optimizer.iterations)
    return progress


def restore_metrics(run: RunFolder, model: TaskModel) -> None:
    """Restore the metrics of the current epoch, because Keras resets them when `fit` starts."""
    read_variables(run.last / _METRICS, model.metrics_variables)
