"""How far fine-tuning is, and its whole state on disk, from which it goes on exactly.

`last/` in the folder of a run holds the variables of the model, the seeds of dropout among them,
those of the optimizer, those of the metrics of the epoch under way, and a JSON file of figures.
"""

import dataclasses
import json
import math
import os
import pathlib
from typing import Any

from keras_bert_d2l.files import replacing_folder, write_text
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.training.pretraining.run_folder import BEST, LAST, mend
from keras_bert_d2l.training.variables import damaged, read_variables, sync, write_variables

_STATE_FILE = "training_state.json"
_VARIABLES, _OPTIMIZER = "variables.safetensors", "optimizer.safetensors"
_METRICS = "metrics.safetensors"
_LOWER_IS_BETTER = ("loss", "entropy", "error")


@dataclasses.dataclass
class TaskState:
    """How far a run is.

    Attributes:
        history: The figures of each whole epoch.
        best_epoch: The best of them, from 1; `None`: there is none yet.
        monitor: The figure that this is decided by.
        batch: Batches done of the epoch under way.
        points: The training loss within the epochs: epochs done, as a fraction, and the mean
            loss since the point before.
        window: Batches done of the epoch at the last point, and their mean loss.
    """

    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    best_epoch: int | None = None
    monitor: str = ""
    batch: int = 0
    points: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    window: tuple[int, float] = (0, 0.0)

    def is_over(self, epochs: int, patience: int | None) -> bool:
        """Tells whether all epochs are done, or so many without a better one."""
        done = len(self.history)
        waited = done - (self.best_epoch or 0)
        return done >= epochs or waited >= (patience or math.inf)

    def add_point(self, num_batches: int, mean: float) -> None:
        """Notes the mean loss of the batches of the epoch so far, of which there are more."""
        before, mean_before = self.window
        loss = (mean * self.batch - mean_before * before) / (self.batch - before)
        if math.isfinite(loss):
            self.points.append((len(self.history) + self.batch / num_batches, loss))
        self.window = (self.batch, mean) if math.isfinite(mean) else (self.batch, 0.0)

    def add_epoch(self, figures: dict[str, Any]) -> bool:
        """Takes the figures of one more epoch, and tells whether it is the best so far."""
        self.history.append(figures)
        self.batch, self.window = 0, (0, 0.0)
        if figures[self.monitor] is None:  # not a number
            return False
        best = None if self.best_epoch is None else self.history[self.best_epoch - 1]
        if best is not None and self._rank(figures) <= self._rank(best):
            return False
        self.best_epoch = len(self.history)
        return True

    def _rank(self, figures: dict[str, Any]) -> tuple[float, float]:
        """What is higher for a better epoch: by the monitored figure, then by the loss."""
        sign = -1 if self.monitor.endswith(_LOWER_IS_BETTER) else 1
        loss = figures.get("val_loss")
        return sign * figures[self.monitor], -math.inf if loss is None else -loss


def save_state(
    run: pathlib.Path, model: TaskModel, state: TaskState, settings: dict[str, Any]
) -> None:
    """Writes `last/`, whole or not at all.

    Args:
        run: The folder of the run.
        model: The compiled model.
        state: How far it is.
        settings: What has to be the same for the run to go on.
    """
    sync(model)
    stored = {**dataclasses.asdict(state), "settings": settings}
    with replacing_folder(run / LAST) as folder:
        write_variables(folder / _VARIABLES, model.variables)
        write_variables(folder / _OPTIMIZER, model.optimizer.variables)
        if state.batch:
            write_variables(folder / _METRICS, model.metrics_variables)
        write_text(folder / _STATE_FILE, json.dumps(stored) + "\n")


def has_state(run: pathlib.Path) -> bool:
    """Tells whether a folder holds a run to go on with; mends what a killed process left behind."""
    for name in (BEST, LAST):
        mend(run / name)
    return (run / LAST / _STATE_FILE).is_file()


def restore_state(run: pathlib.Path, model: TaskModel, settings: dict[str, Any]) -> TaskState:
    """Gives a compiled model what `last/` holds, but for the metrics of an epoch under way.

    Raises:
        FileNotFoundError: There is no run.
        ValueError: A file is damaged, or the run has other settings.
    """
    file = run / LAST / _STATE_FILE
    if not has_state(run):
        raise FileNotFoundError(
            f"{os.fspath(run)!r} holds no run that could be resumed: it has no {LAST}/{file.name}."
        )
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        of_run = dict(stored.pop("settings"))
        state = TaskState(**stored)
        state.points = [(float(x), float(y)) for x, y in state.points]
        state.window = (int(state.window[0]), float(state.window[1]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(file, error) from error
    for name, value in settings.items():
        if of_run.get(name) != value:
            raise ValueError(
                f"The run {os.fspath(run)!r} has {name}={of_run.get(name)!r:.200} and goes on with "
                f"its own. Received: {name}={value!r:.200}."
            )
    read_variables(run / LAST / _VARIABLES, model.variables)
    read_variables(run / LAST / _OPTIMIZER, model.optimizer.variables)
    return state


def restore_metrics(run: pathlib.Path, model: TaskModel) -> None:
    """Gives the metrics of an epoch under way what they had; Keras has just set them to 0."""
    read_variables(run / LAST / _METRICS, model.metrics_variables)
